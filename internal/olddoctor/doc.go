// Package doctor finds out why a ServiceAccount gets no credentials. It runs up to 25 checks in a fixed order, from what
// needs nothing but the token to the real exchange, the registry and the cluster, and shows what was observed beside what
// was expected. Command wid doctor is a thin layer above it.
//
//	report := doctor.Run(ctx, doctor.Config{
//		Provider:       &aws.Provider{},
//		ServiceAccount: client.ObjectKey{Namespace: "tenant-a", Name: "app"},
//		Client:         kubeClient,
//		Options:        []auth.Option{auth.WithSTSRegion("eu-central-1")},
//	})
//	fmt.Print(report)
//	os.Exit(report.ExitCode())
//
// A controller explains the error that it got, without running any check:
//
//	condition := doctor.ConditionOf(err, "IdentityReady", obj.Generation)
//
// or examines the object, and puts what decides into a condition:
//
//	report := doctor.Run(ctx, doctor.Config{
//		Provider:       provider,
//		ServiceAccount: client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.ServiceAccountName},
//		Client:         mgr.GetClient(),
//		Reader:         mgr.GetAPIReader(),
//		RESTConfig:     mgr.GetConfig(),
//	})
//	meta.SetStatusCondition(&obj.Status.Conditions, report.Condition("IdentityReady", obj.Generation))
//
// # What a run costs
//
// Run is for errors, not for each reconcile: nothing of it is cached, neither by auth.WithCache nor from run to run, and a
// worker waits for it, for Config.Timeout at most. A run with a ServiceAccount makes a SelfSubjectReview, a TokenRequest and a
// TokenReview; reads the ServiceAccount, the pod if one was named and, where the webhook has not changed that, the
// MutatingWebhookConfigurations; reads discovery document and keys of the API server and of the issuer; asks the cloud for its
// time; and makes the exchange, one request or two, registry, cluster and trust only if they were named. Services that
// throttle or fail are asked up to three times, as the provider does for everybody. Skip leaves out what is not wanted.
//
// Findings hold claims and the first 8 hexadecimal digits of a token's SHA-256, never a token. The package compiles no SDK
// of a cloud: what only an SDK can do comes in as a value, such as the readers of awstrust, azuretrust and gcptrust.
//
// Two targets have no provider, and reports of their own: RunBootstrap examines how a machine discovers a cluster by token,
// RunEnrolment how a cluster gets managed by a hub of Open Cluster Management.
//
// # Remedies
//
// A remedy first corrects what the user wrote. The commands that have a cloud trust more follow only with Config.ShowPolicy.
//
// # Results
//
// Unknown means that a check could not look: a right, a client or the network was missing. It never counts as Pass. Skip
// means that there was nothing to look at, or that an earlier failure leaves nothing to say. A failure of the checks 10 to
// 12 becomes a warning if the real exchange (21) works: the cloud can see what this machine cannot. So does a clock of this
// machine's that is off. Where this machine reaches the cloud as little as the issuer, or believes its certificate as little, the
// checks 10 to 12 are Unknown. What nobody was given to read (Config.Trust is nil) is Skip if the exchange works, else Unknown. When the time is over, the checks that needed it are Unknown and name
// whoever was waited for; the others are judged.
package doctor
