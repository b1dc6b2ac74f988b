package provider

// KeyBuilder collects the inputs of a credential for its key in the cache. No two different inputs give the same key. An empty input
// is left out. A KeyBuilder is not safe for concurrent use.
type KeyBuilder interface {
	// Add adds an input.
	Add(name, value string)
	// AddList adds an input that has several values, whose order counts.
	AddList(name string, values []string)
	// AddVariation adds an input that shapes the credential, but hardly ever decides whether the exchange succeeds, such as the
	// pod of a session. Keys that differ only in variations back off together after failures. An input that a tenant can easily get
	// wrong for one object alone is not a variation.
	AddVariation(name string, values []string)
}
