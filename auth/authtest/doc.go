// Package authtest checks implementations of auth.Provider: [RunConformance]
// asks a provider everything that package auth relies on, and a [Harness] tells
// it how to build, reach and break the service behind the provider.
//
// Package cloudtest imitates the cluster that issues the tokens and the clouds
// that verify them.
package authtest
