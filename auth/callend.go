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

func (r *request) describe(err error) error {
	return describe(err, r.providerName(), r.operation, r.subject())
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
func (r *request) providerName() (name string) {
	defer func() { _ = recover() }()
	if r.provider != nil {
		name = r.provider.GetName()
	}
	return name
}

// subject names the ServiceAccount, or nothing for the controller's own identity.
func (r *request) subject() client.ObjectKey {
	switch {
	case r.opts.ServiceAccount != nil:
		return *r.opts.ServiceAccount
	case r.opts.SubjectServiceAccount != nil:
		return client.ObjectKeyFromObject(r.opts.SubjectServiceAccount)
	}
	return client.ObjectKey{}
}
