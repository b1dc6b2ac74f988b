// Package serviceaccounts reads ServiceAccounts from memory, for controllers that do so on every call of auth.
//
// A Reader lists and watches the metadata of ServiceAccounts and keeps no more than auth and its providers look at: name,
// namespace, UID, the annotations with the given prefixes, and whether it is being deleted.
//
//	accounts, err := serviceaccounts.New(mgr.GetConfig(), serviceaccounts.Options{
//		AnnotationPrefixes: []string{"eks.amazonaws.com/", "iam.gke.io/", "azure.workload.identity/"},
//	})
//	if err != nil {
//		return err
//	}
//	if err := mgr.Add(accounts); err != nil {
//		return err
//	}
//	kube := accounts.Client(mgr.GetClient())
//	...
//	token, err := auth.GetAccessToken(ctx, provider, auth.WithServiceAccount(key, kube), ...)
//
// Reading one copies no maps and allocates nothing. Changes take effect as soon as the watch brings them, mostly within
// milliseconds. While the API server cannot be reached, what was read last counts.
//
// # Memory
//
// About 590 bytes for a ServiceAccount with an annotation that is kept, and 190 bytes for one without (namespaces of 12 and
// annotations of 50 characters; BenchmarkBytesPerServiceAccount measures it). A manager's own cache keeps the whole object
// with its managed fields, some kilobytes, and copies it on every read.
//
// # RBAC
//
// The ServiceAccount of the controller needs
//
//   - apiGroups: [""]
//     resources: [serviceaccounts]
//     verbs: [list, watch]
//   - apiGroups: [""]
//     resources: [serviceaccounts/token]
//     verbs: [create]
//
// in a ClusterRole, or in Roles of the namespaces if there is a Reader for each. The second rule is auth's.
package serviceaccounts
