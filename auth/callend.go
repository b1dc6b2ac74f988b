package auth

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cache"
)

// end completes the error and gives the call back. It also turns a panic in code that a tenant's annotations reach
// into an error, for controllers that have nobody else to catch it. The panic's value may hold anything, so only its
// type is told.
func (c *call) end(token *Token, err *error) {
	if p := recover(); p != nil {
		*token, *err = nil, cache.NewPanicError(p)
	}
	if *err != nil {
		*token, *err = nil, c.describeAtLast(*err)
	}
	buf := c.key.buf[:0]
	*c = call{} // in place: a literal with a field would be built elsewhere and copied
	if cap(buf) <= maxScratch {
		c.key.buf = buf
		scratch.Put(c)
	}
}

func (c *call) describe(err error) error {
	return describe(err, c.providerName(), c.operation, c.subject())
}

// describeAtLast also is where an error that is a nil pointer, or another one of a provider's that panics, comes to its end.
func (c *call) describeAtLast(err error) (described error) {
	defer func() {
		if p := recover(); p != nil {
			described = c.describe(cache.NewPanicError(p))
		}
	}()
	return c.describe(err)
}

// providerName is empty if there is none to ask.
func (c *call) providerName() (name string) {
	defer func() { _ = recover() }()
	if c.provider != nil {
		name = c.provider.GetName()
	}
	return name
}

// subject names the ServiceAccount, or nothing for the controller's own identity.
func (c *call) subject() client.ObjectKey {
	switch {
	case c.opts.ServiceAccount != nil:
		return *c.opts.ServiceAccount
	case c.opts.SubjectServiceAccount != nil:
		return client.ObjectKeyFromObject(c.opts.SubjectServiceAccount)
	}
	return client.ObjectKey{}
}
