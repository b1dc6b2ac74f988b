// Package authtest checks implementations of [auth.Provider], for authors of
// providers. [RunConformance] checks everything that package auth relies on. A
// [Harness] describes how to build, reach and break the service behind the
// provider.
//
// TestVault of this package runs the suite on a complete provider.
// docs/writing-a-provider.md shows both. Package cloudtest imitates the cluster
// that issues the tokens and the clouds that verify them.
package authtest
