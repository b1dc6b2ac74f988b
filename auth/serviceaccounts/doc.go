// Package serviceaccounts reads ServiceAccounts from memory, for controllers that do so on every call of auth.
//
// A Reader lists and watches the metadata of ServiceAccounts and keeps no more than auth and its providers look at: name,
// namespace, UID, resource version, the annotations that the providers of this module read and others
// that Options.AnnotationPrefixes name, and whether it is being deleted. Of each annotation it keeps the first 4,096 bytes,
// which is more than any of those providers accepts.
//
//	accounts, err := serviceaccounts.New(mgr.GetConfig(), serviceaccounts.Options{})
//	if err != nil {
//		return err
//	}
//	if err := mgr.Add(accounts); err != nil {
//		return err
//	}
//	if err := mgr.AddReadyzCheck("serviceaccounts", accounts.Check); err != nil {
//		return err
//	}
//	kube := accounts.Client(mgr.GetClient())
//	...
//	token, err := auth.GetAccessToken(ctx, provider, auth.WithServiceAccount(key, kube), ...)
//
// When auth reads one with such a client, that copies no maps and allocates nothing. Others get copies, which are not whole:
// ServiceAccounts are written with another client.
//
// # How old it may be
//
// Changes take effect as soon as the watch brings them, mostly within milliseconds. While the API server cannot be reached
// or refuses, what was read last counts, for at most Options.MaxAge after the last contact: an outage takes no cached
// credential away, and a controller that has lost the right to list and watch does not go by old annotations for ever.
// Meanwhile Reader.Check and Reader.LastContact tell. Before the first reading, Get waits for up to Options.SyncTimeout;
// what the API server refuses it tells at once. The Reader tries again after at most a minute. After its end, it reads
// nothing.
//
// # Memory
//
// About 635 bytes for a ServiceAccount with an annotation that is kept, and 235 bytes for one without (namespaces of 12 and
// annotations of 50 characters; BenchmarkBytesPerServiceAccount measures it). A tenant can make it 35 kB with long values,
// and 256 kB if there is a prefix to keep. A manager's own cache keeps the whole object with its managed fields, some
// kilobytes, and copies it on every read.
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
// in a ClusterRole, or in Roles of the namespaces if there is a Reader for each: kube is then b.Client(a.Client(base)).
// ServiceAccounts of all other namespaces are read by base, as far as it may. The second rule is auth's.
package serviceaccounts
