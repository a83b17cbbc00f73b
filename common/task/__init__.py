"""One task: a sub-topology for one partition, its input buffers, record scopes, stores, punctuations, boundaries."""
