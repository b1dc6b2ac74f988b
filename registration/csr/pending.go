package csr

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Pending returns the open requests that an administrator may approve for a cluster, oldest first. If cluster is "", it covers all
// clusters. Parse accepts each request. Pending omits requests by agents of other clusters, because an agent may create
// requests with any subject. Any user may have made the others, so show csr.Spec.Username. The reader must not be a cache.
func Pending(ctx context.Context, c client.Reader, cluster string) ([]certificatesv1.CertificateSigningRequest, error) {
	return List(ctx, c, cluster, IsOpen)
}

// List returns other requests than the open ones, with the rules and the order of Pending.
func List(ctx context.Context, c client.Reader, cluster string, keep func(*certificatesv1.CertificateSigningRequest) bool) ([]certificatesv1.CertificateSigningRequest, error) {
	labels := client.ListOption(client.HasLabels{ocm.ClusterNameLabel})
	if cluster != "" {
		labels = client.MatchingLabels{ocm.ClusterNameLabel: cluster}
	}
	var found []certificatesv1.CertificateSigningRequest
	for csr, err := range All(ctx, c, labels) {
		if err != nil {
			return nil, err
		}
		request, err := Parse(csr)
		if err == nil && keep(csr) && !isOtherAgent(&csr.Spec, request.Cluster) {
			found = append(found, *csr)
		}
	}
	slices.SortFunc(found, func(a, b certificatesv1.CertificateSigningRequest) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return found, nil
}

// isOtherAgent reports whether the requester is the agent of another cluster, whichever driver it authenticates by.
func isOtherAgent(spec *certificatesv1.CertificateSigningRequestSpec, cluster string) bool {
	own := append(registration.ClusterGroups(cluster), ocm.ManagedClustersGroup)
	return slices.ContainsFunc(spec.Groups, func(group string) bool {
		return strings.HasPrefix(strings.TrimPrefix(group, "system:"), "open-cluster-management:") && !slices.Contains(own, group)
	})
}

// page bounds the memory of a list: without an admission policy, a request has up to 1.5 MiB.
const page = client.Limit(20)

// All lists CertificateSigningRequests page by page. An error ends it. A cache has no pages: it returns an error after the first one.
func All(ctx context.Context, c client.Reader, labels client.ListOption) iter.Seq2[*certificatesv1.CertificateSigningRequest, error] {
	return func(yield func(*certificatesv1.CertificateSigningRequest, error) bool) {
		for more := ""; ; {
			var list certificatesv1.CertificateSigningRequestList
			if err := c.List(ctx, &list, labels, page, client.Continue(more)); err != nil {
				yield(nil, fmt.Errorf("list CertificateSigningRequests: %w", err))
				return
			}
			for i := range list.Items {
				if !yield(&list.Items[i], nil) {
					return
				}
			}
			if more = list.Continue; more == "" {
				return
			}
		}
	}
}

// IsOpen reports whether a request is that of a cluster's agent for itself and has not been decided.
func IsOpen(csr *certificatesv1.CertificateSigningRequest) bool {
	return IsAgents(csr) && IsUndecided(csr)
}

// IsAgents reports whether the labels of a request are those of an agent's request for itself.
func IsAgents(csr client.Object) bool {
	return csr.GetLabels()[ocm.ClusterNameLabel] != "" && csr.GetLabels()[addon.NameLabel] == ""
}

// IsUndecided reports whether a request for a client certificate of the hub is neither decided nor signed.
func IsUndecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName &&
		len(csr.Status.Certificate) == 0 && Decision(csr, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed) == nil
}
