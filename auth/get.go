package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

const opAccessToken = "get access token"

// GetAccessToken returns a credential for the provider's services: for the
// ServiceAccount that the options name, or for the controller's own identity if
// they name none. The type of the Token is the provider's.
//
//  1. The options are resolved and checked before any network call.
//  2. Without a ServiceAccount, the credential is the controller's own.
//  3. The ServiceAccount is read, also if the credential is cached. Deleting,
//     re-creating or re-annotating it takes effect as soon as the client reads
//     the change: at once with a direct client, after the informer with a
//     manager's client.
//  4. Audiences and identity come from the provider and the annotations, and
//     the Policy checks them.
//  5. The cache is asked, with a key of everything that shapes the credential.
//  6. Otherwise a token of the ServiceAccount is requested, checked, and
//     exchanged at the provider. The result is cached.
//
// With [WithSubjectIssuer], the source issues the token in step 6, also for the
// controller's own identity.
//
// Without a cache every call makes an exchange. With one, simultaneous calls
// share an exchange. A call that gives up because its context ends fails none
// of the others.
//
// Errors hold an *Error; its Reason says what to do next. GetAccessToken is
// safe for concurrent use.
func GetAccessToken(ctx context.Context, provider Provider, opts ...Option) (Token, error) {
	return get(ctx, provider, opAccessToken, opts, nil)
}

// get is the body of each Get function: it resolves the call, plans the
// credential, and asks the cache for it. derive is nil for an access token.
//
// A panic in code that a tenant's annotations reach becomes an error. The error
// names only the type of the panic's value, which may hold anything.
func get(ctx context.Context, p Provider, operation string, opts []Option, derive derivation) (token Token, err error) {
	s, _ := hits.Get().(*resolved)
	s.operation, s.provider = operation, p
	defer func() {
		if v := recover(); v != nil {
			token, err = nil, s.describe(panicked(v))
		}
	}()
	s.opts.apply(opts)
	hit := false
	if err = s.resolve(ctx, derive); err == nil {
		token, hit, err = s.run(ctx)
	}
	if err != nil {
		return nil, s.nameCaller(s.describe(err))
	}
	if hit {
		*s = resolved{}
		hits.Put(s)
	}
	return token, nil
}

// hits holds the memory of calls that found their credential in the cache. A
// miss never goes back: its plan may outlive the call.
var hits = sync.Pool{New: func() any { return &resolved{} }}

// run asks the cache, which alone keeps, shares and renews credentials. Only a
// miss needs the whole plan.
func (s *resolved) run(ctx context.Context) (token Token, hit bool, err error) {
	key := s.key()
	if token, ok := s.opts.Cache.Get(key.sum(), s.opts.InvolvedObject, s.opts.MinimumLifetime, s.opts.invalidBefore); ok {
		return token, true, nil
	}
	token, _, err = s.opts.Cache.GetOrSet(ctx, s.plan(key))
	var known *Error
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &known) {
		err = s.opts.hideProxy(clean(err, "")) // the caller gave up first
	}
	return token, false, err
}

// nameCaller completes an error that the caller's annotations can have caused.
// The cache hands an error to several callers, each with annotations of its
// own. Errors of TokenRequests have other causes.
func (s *resolved) nameCaller(err error) error {
	if err == nil || s.account == nil || len(s.opts.Annotations) == 0 {
		return err
	}
	var known *Error
	if !errors.As(err, &known) || !isRefusal(known) || known.Operation == opCreateToken {
		return err
	}
	named := *known
	const most, longest = 8, 100 // an object's author may choose the names
	names := slices.Sorted(maps.Keys(s.opts.Annotations))
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", n))
	}
	for i, name := range names {
		names[i] = name[:min(len(name), longest)]
	}
	named.CallersAnnotations, named.Err = names, err
	return &named
}
