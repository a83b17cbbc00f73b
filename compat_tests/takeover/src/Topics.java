/** The topics of a part: inputs of the case, outputs of the application. */
final class Topics {
    final long pauseMicros;
    private final String inputs;
    private final String application;
    private final String part;

    Topics(String inputs, String application, String part, long pauseMicros) {
        this.inputs = inputs;
        this.application = application;
        this.part = part;
        this.pauseMicros = pauseMicros;
    }

    Topics of(String name) {
        return new Topics(inputs, application, name, pauseMicros);
    }

    String in(String suffix) {
        return inputs + "-" + part + "-" + suffix;
    }

    String out() {
        return application + "-" + part;
    }
}
