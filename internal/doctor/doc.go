// Package doctor finds out why something does not work and reports it on one screen: what is wrong, on which cluster, and what to
// do.
//
// This package is the engine. An Examination is an ordered list of checks. Run performs them and returns a Report:
//
//	report := doctor.Run(ctx, doctor.Examination{
//		Subject: "tenant-a/app → vault",
//		Checks: []doctor.Check{
//			{ID: "address", Title: "the address of Vault", Run: address},
//			{ID: "login", Title: "the login at Vault", Needs: []string{"address"}, Run: login},
//		},
//		Decisive: "login",
//	})
//	fmt.Print(report.Text(doctor.TextOptions{}))
//	os.Exit(report.ExitCode())
//
// The packages below it hold the checks, one system each:
//
//   - identity: a ServiceAccount that gets no credentials
//   - trust/aws: what AWS trusts, read live or from a file
//   - bootstrap: a machine that cannot discover or join a cluster
//   - registration: a managed cluster that does not join its hub
//   - podidentity: a pod that gets no AWS credentials through an IAMBinding
//
// # Results
//
// Unknown means that a check could not look: a right, a client or the network was missing. It never counts as a pass. Skip means
// that there was nothing to examine, or that a check before it has failed.
//
// # Remedies
//
// A remedy first corrects what the user wrote. The commands that make a cloud trust more follow only with
// Examination.ShowPolicy, and never alone.
//
// # Secrets
//
// The engine removes the secrets that Examination.Secrets names, and every JWT, from all texts of a report, and replaces
// characters that a terminal would interpret.
package doctor
