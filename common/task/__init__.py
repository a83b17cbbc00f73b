"""One task: a sub-topology for one partition, with its input buffers, record scopes, stores, punctuations and
boundaries."""
