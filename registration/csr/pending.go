package csr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Pending returns the open requests that an administrator may approve for a cluster, oldest first. If cluster is "", it covers all
// clusters. Each request passes ParseRequest. Pending omits requests by agents of other clusters, because an agent may create
// requests with any subject. Any bootstrap user may have made the others, so show csr.Spec.Username.
func Pending(ctx context.Context, c client.Reader, cluster string) ([]certificatesv1.CertificateSigningRequest, error) {
	labels := client.ListOption(client.HasLabels{ocm.ClusterNameLabel})
	if cluster != "" {
		labels = client.MatchingLabels{ocm.ClusterNameLabel: cluster}
	}
	var list certificatesv1.CertificateSigningRequestList
	if err := c.List(ctx, &list, labels); err != nil {
		return nil, fmt.Errorf("list CertificateSigningRequests: %w", err)
	}
	pending := slices.DeleteFunc(list.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		request, err := ParseRequest(&csr)
		return err != nil || !isOpen(&csr) || isOtherAgent(&csr.Spec, request.Cluster)
	})
	slices.SortFunc(pending, func(a, b certificatesv1.CertificateSigningRequest) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return pending, nil
}

// isOtherAgent reports whether the requester is the agent of another cluster, whichever driver it authenticates by.
func isOtherAgent(spec *certificatesv1.CertificateSigningRequestSpec, cluster string) bool {
	own := append(registration.ClusterGroups(cluster), registration.ManagedClustersGroup)
	return slices.ContainsFunc(spec.Groups, func(group string) bool {
		return strings.HasPrefix(strings.TrimPrefix(group, "system:"), "open-cluster-management:") && !slices.Contains(own, group)
	})
}
