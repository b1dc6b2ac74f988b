// Package clientgo lets controllers that use client-go without controller-runtime pass their clientset to auth.
//
//	kube := clientgo.New(clientset)
//	token, err := auth.GetAccessToken(ctx, provider,
//		auth.WithServiceAccount(types.NamespacedName{Namespace: "tenant-a", Name: "app"}, kube),
//		auth.WithCache(tokenCache, object))
//
// Importing the package compiles the client of the core API group, not the whole clientset.
package clientgo
