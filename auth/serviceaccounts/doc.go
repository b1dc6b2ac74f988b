// Package serviceaccounts reads ServiceAccounts from memory, for controllers that read one on every call of auth.
//
// A Reader lists and watches the metadata of ServiceAccounts. It keeps name, namespace, UID, resource version, deletion timestamp
// and the annotations that the providers of this module read. Options.AnnotationPrefixes adds others. The Reader keeps the first
// 4,096 bytes of each annotation, which is more than any of those providers accepts.
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
// A read by auth with this client copies no maps and allocates nothing. Other callers get copies. These are incomplete, so write
// ServiceAccounts with another client.
//
// # Age
//
// A change takes effect when the watch delivers it, mostly within milliseconds. While the API server is unreachable or refuses,
// the Reader serves what it has, for at most Options.MaxAge after the last contact. An outage therefore invalidates no cached
// credential. A controller that has lost its rights does not use old annotations forever. Reader.Check and Reader.LastContact
// report such a state.
//
// Before the first list, Get waits for up to Options.SyncTimeout. It reports a refusal at once. The Reader retries after at most
// a minute. A stopped Reader serves nothing.
//
// # Memory
//
// A ServiceAccount takes about 635 bytes with one kept annotation, and 235 bytes without. (BenchmarkBytesPerServiceAccount
// measures it, with namespaces of 12 and annotations of 50 characters.) A tenant can make it 35 kB with long values, and 256 kB
// with Options.AnnotationPrefixes. A manager's own cache keeps the whole object with its managed fields, some kilobytes, and
// copies it on every read.
//
// # RBAC
//
// The controller's ServiceAccount needs these rules. The second is for auth.
//
//	rules:
//	- apiGroups: [""]
//	  resources: [serviceaccounts]
//	  verbs: [list, watch]
//	- apiGroups: [""]
//	  resources: [serviceaccounts/token]
//	  verbs: [create]
//
// Grant them in a ClusterRole. Alternatively use one Reader per namespace with Roles there, and stack their clients:
// b.Client(a.Client(base)). Then base reads the ServiceAccounts of all other namespaces, as far as its rights allow.
package serviceaccounts
