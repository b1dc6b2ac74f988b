// Package identity examines why a ServiceAccount gets no credentials of a cloud.
//
// Run examines one ServiceAccount, from its annotations to the credential:
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
// With a Pod in the Config, Run also examines what that pod was given. With InPod, it examines the environment of the process
// itself. With a Token or a TokenFile, it examines that token instead of requesting one.
//
// The decisive check is "exchange": it performs the exchange that the controller would perform, without a cache. The other
// checks explain its failure. Checks lists them.
//
// # What leaves the machine
//
// The token goes to the provider, and to the cluster of the Client for a TokenReview. The issuer's documents are read without
// credentials. The addresses come from the token, so do not examine tokens of untrusted parties where that matters: an address
// of the own network is read only if the issuer itself lies there.
package identity
