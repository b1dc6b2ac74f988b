// Package identity examines why a ServiceAccount gets no credentials of a cloud.
//
//	report := identity.Run(ctx, identity.Config{
//		Provider:       &aws.Provider{},
//		Options:        []auth.Option{auth.WithSTSRegion("eu-central-1")},
//		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
//		Client:         kubeClient,
//		RESTConfig:     restConfig,
//	})
//	fmt.Print(report)
//
// The decisive check is "exchange": it performs the exchange that a controller would perform, without a cache. The other checks
// explain its failure. Checks lists them.
//
// The token goes to the provider, and to the cluster of the Client for a TokenReview. A copy of a pod goes to that cluster in a dry run.
// The issuer's documents are read without credentials. Their address comes from the token, so do not examine tokens of untrusted parties
// where that matters.
package identity
