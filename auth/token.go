package auth

import "github.com/workloadid/workloadid/cache"

// Token is a short-lived credential. What it consists of differs from provider to provider, so callers assert the
// type that the provider documents (*aws.Token, *token.Token, ...); the adapters of each provider do that for them.
//
//	GetDuration() time.Duration // how long the credential is still valid, approximately from now
//
// A Token is immutable and is shared between all callers that ask for the same credential. Every Token of this module
// prints as a redacted summary under all formatting verbs, in slog, in logr and in JSON.
type Token = cache.Token
