package aws

import "time"

// Impatient returns a Provider without the real delays of the SDK between two
// tries.
func Impatient() *Provider { return &Provider{maxDelay: time.Millisecond} }
