"""The kinds of stores: what user code and operators see, how each kind lies in an engine and in its changelog."""
