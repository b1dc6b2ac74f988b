package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// hashAnnotation tells in the cache that annotations have changed.
const hashAnnotation = "registration.open-cluster-management.io/hash-of-annotations"

// CacheOptions returns options for the cache of a manager that runs a Hub. They bound the memory that bootstrap users can take:
//
//   - CertificateSigningRequests: only those with the label ocm.ClusterNameLabel. Of their metadata, the cache keeps the name and the labels
//     of cluster and add-on. The approvers of package csr watch metadata only, and read the rest when they decide.
//   - ManagedClusters: whole, if they are accepted. Of others it keeps metadata with a hash in place of the annotations, and conditions.
//   - All objects: without managedFields.
//
// A request or a cluster that is not accepted takes less than 2 KiB. Other controllers of the manager read the same cache. Let them read
// other requests and fields through the manager's API reader.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&certificatesv1.CertificateSigningRequest{}: {Label: ofClusters(), Transform: stripRequest},
			&ocm.ManagedCluster{}:                       {Transform: stripCluster},
		},
	}
}

// ofClusters selects objects with the label of a cluster.
func ofClusters() labels.Selector {
	has, _ := labels.NewRequirement(ocm.ClusterNameLabel, selection.Exists, nil) // a constant is valid
	return labels.NewSelector().Add(*has)
}

func stripRequest(in any) (any, error) {
	o, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // a deletion that the watch missed
	}
	kept := map[string]string{}
	for _, key := range []string{ocm.ClusterNameLabel, addon.NameLabel} {
		if value, ok := o.GetLabels()[key]; ok {
			kept[key] = value
		}
	}
	o.SetLabels(kept)
	o.SetAnnotations(nil)
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	o.SetGenerateName("")
	return in, nil
}

// stripCluster may see an object twice.
func stripCluster(in any) (any, error) {
	in, err := cache.TransformStripManagedFields()(in)
	cluster, ok := in.(*ocm.ManagedCluster)
	if !ok || cluster.Spec.HubAcceptsClient {
		return in, err
	}
	cluster.Spec = ocm.ManagedClusterSpec{LeaseDurationSeconds: cluster.Spec.LeaseDurationSeconds}
	cluster.Status = ocm.ManagedClusterStatus{Conditions: cluster.Status.Conditions}
	if hash, done := cluster.Annotations[hashAnnotation]; len(cluster.Annotations) > 0 && (!done || len(cluster.Annotations) > 1 || len(hash) != hex.EncodedLen(sha256.Size)) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q", cluster.Annotations))
		cluster.Annotations = map[string]string{hashAnnotation: hex.EncodeToString(sum[:])}
	}
	return cluster, err
}
