package auth

import (
	"context"
)

const opAccessToken = "get access token"

// GetAccessToken returns a credential for the provider's services: for the ServiceAccount that the options name, or
// for the controller's own identity if they name none. The type of the Token is the provider's.
//
//  1. The options are resolved and checked, and refused before anything is asked of the network.
//  2. Without a ServiceAccount, the credential is the controller's own.
//  3. The ServiceAccount is read, also if the credential is cached: deleting, re-creating or re-annotating it takes
//     effect as soon as the client sees it: at once with a direct client, after the informer with a manager's.
//  4. Audiences and identity come from the provider and the annotations, and the Policy judges them.
//  5. The cache is asked, with a key of everything that shapes the credential.
//  6. Otherwise a token of the ServiceAccount is requested, checked, and exchanged at the provider; the result is cached.
//
// Without a cache every call makes an exchange. With one, simultaneous calls share an exchange; a call that gives up
// because its context ends fails none of the others.
//
// Errors hold an *Error; see Reason for what to do about them. GetAccessToken is safe for concurrent use.
func GetAccessToken(ctx context.Context, provider Provider, opts ...Option) (token Token, err error) {
	c := beginCall(provider, opAccessToken, opts)
	defer c.end(&token, &err)
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	return c.accessToken(ctx)
}
