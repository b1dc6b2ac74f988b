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

// List returns the requests of a cluster's agents for themselves that keep
// selects, such as (*Request).IsPending, oldest first. If cluster is "", it
// covers all clusters. It leaves out requests that [Parse] refuses. It also
// leaves out requests by agents of other clusters, because an agent may create
// requests with any subject. Any user may have created the remaining requests,
// so show or check the requester. List reads page by page, so the reader must
// not be a cache.
func List(ctx context.Context, c client.Reader, cluster string, keep func(*Request) bool) ([]*Request, error) {
	labels := client.ListOption(client.HasLabels{ocm.ClusterNameLabel})
	if cluster != "" {
		labels = client.MatchingLabels{ocm.ClusterNameLabel: cluster}
	}
	var found []*Request
	for csr, err := range eachRequest(ctx, c, labels) {
		if err != nil {
			return nil, err
		}
		request, err := Parse(csr)
		if err == nil && isAgents(csr) && keep(request) && !isOtherAgent(&csr.Spec, request.Cluster) {
			alone := *csr // otherwise it keeps its page in memory
			request.Object = &alone
			found = append(found, request)
		}
	}
	slices.SortFunc(found, func(a, b *Request) int {
		age := a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time)
		return cmp.Or(age, strings.Compare(a.Object.Name, b.Object.Name))
	})
	return found, nil
}

// isOtherAgent reports whether the requester is the agent of another cluster,
// whichever driver it authenticates by.
func isOtherAgent(spec *certificatesv1.CertificateSigningRequestSpec, cluster string) bool {
	own := append(registration.ClusterGroups(cluster), ocm.ManagedClustersGroup)
	return slices.ContainsFunc(spec.Groups, func(group string) bool {
		return strings.HasPrefix(strings.TrimPrefix(group, "system:"), "open-cluster-management:") &&
			!slices.Contains(own, group)
	})
}

// page bounds the memory of a list. Without an admission policy, a request has
// up to 1.5 MiB.
const page = client.Limit(20)

// eachRequest lists CertificateSigningRequests page by page. An error ends it.
// A cache has no pages: it returns an error after the first page.
func eachRequest(ctx context.Context, c client.Reader,
	labels client.ListOption) iter.Seq2[*certificatesv1.CertificateSigningRequest, error] {
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

// isOpen reports whether a cluster's agent made the request for itself and the
// request has not been decided.
func isOpen(csr *certificatesv1.CertificateSigningRequest) bool {
	return isAgents(csr) && isUndecided(csr)
}

// isAgents reports whether the labels mark a request of an agent for itself.
func isAgents(csr client.Object) bool {
	return csr.GetLabels()[ocm.ClusterNameLabel] != "" && csr.GetLabels()[addon.NameLabel] == ""
}

// isUndecided reports whether a request for a client certificate of the hub is
// neither decided nor signed.
func isUndecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName &&
		len(csr.Status.Certificate) == 0 &&
		decision(csr, certificatesv1.CertificateApproved, certificatesv1.CertificateDenied,
			certificatesv1.CertificateFailed) == nil
}
