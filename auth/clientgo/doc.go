// Package clientgo lets controllers that use client-go without
// controller-runtime pass their clientset to auth. The example of the package
// passes what [New] returns to [auth.WithServiceAccount].
//
// Importing the package compiles the client of the core API group, not the
// whole clientset.
package clientgo
