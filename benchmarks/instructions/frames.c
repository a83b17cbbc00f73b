/* Makes Python functions visible to callgrind, which knows only C functions.

   Each pair of a calling and a called Python function gets a C function of its own: pair_0, pair_1 and so on. The
   interpreter runs a Python function by way of the C function of its pair (PEP 523). So what callgrind counts for this C
   function is the cost of the Python function, called from there. A pair that finds no C function left runs without
   one, and its cost belongs to the caller.

   `functions.py` compiles it with Python's internal headers, and with `pairs.h`, which has a line PAIR(number) for each
   pair. */
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_pystate.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "the frames of Python 3.11 are known here, those of other versions aren't"
#endif

#define PLACES 65536 /* of the hash table, a power of two: far more than there are pairs */

typedef struct _PyInterpreterFrame Frame;
typedef PyObject *Run(PyThreadState *, Frame *, int);

/* With the empty assembly the call isn't the last thing that a function does. Else the compiler would make a jump of it,
   and callgrind would miss the return. */
#define RETURN_AFTER(call)     \
    PyObject *result = (call); \
    __asm__ volatile("");      \
    return result

#define PAIR(number)                                                                                \
    __attribute__((noinline)) static PyObject *pair_##number(PyThreadState *t, Frame *f, int error) \
    {                                                                                               \
        RETURN_AFTER(_PyEval_EvalFrameDefault(t, f, error));                                        \
    }
#include "pairs.h"
#undef PAIR

#define PAIR(number) pair_##number,
static Run *const runs[] = {
#include "pairs.h"
};
#undef PAIR
#define PAIRS (sizeof runs / sizeof *runs)

typedef struct {
    PyCodeObject *caller, *called;
    Run *run;
} Pair;

static Pair places[PLACES];
static Pair *pairs[PAIRS];
static size_t known;

static PyObject *run_frame(PyThreadState *t, Frame *f, int error)
{
    Frame *above = t->cframe->current_frame;
    if (above == f) /* a generator's frame is the current one before it runs */
        above = f->previous;
    PyCodeObject *caller = above ? above->f_code : NULL, *called = f->f_code;
    size_t at = (((size_t)caller >> 4) * 31 + ((size_t)called >> 4)) % PLACES;
    while (places[at].called && (places[at].called != called || places[at].caller != caller))
        at = (at + 1) % PLACES;
    if (!places[at].called) {
        if (known == PAIRS) {
            RETURN_AFTER(_PyEval_EvalFrameDefault(t, f, error));
        }
        Py_XINCREF(caller); /* else another function could get its address */
        Py_INCREF(called);
        places[at] = (Pair){caller, called, runs[known]};
        pairs[known++] = &places[at];
    }
    RETURN_AFTER(places[at].run(t, f, error));
}

void frames_on(void)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), run_frame);
}

void frames_off(void)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
}

/* Returns a list of (calling code or None, called code), in the order of the pairs' numbers. */
PyObject *frames_pairs(void)
{
    PyObject *list = PyList_New(0);
    for (size_t at = 0; list && at < known; at++) {
        PyObject *caller = pairs[at]->caller ? (PyObject *)pairs[at]->caller : Py_None;
        PyObject *pair = PyTuple_Pack(2, caller, pairs[at]->called);
        if (!pair || PyList_Append(list, pair))
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}
