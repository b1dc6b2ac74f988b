package csr_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/csr"
)

// A person who approves all that List returns gives no cluster the certificate
// of another one.
func TestListReturnsThePendingRequests(t *testing.T) {
	key := ecKey(t)
	b := fake.NewClientBuilder().WithScheme(regtest.Scheme(t))
	add := func(name string, request *certificatesv1.CertificateSigningRequest,
		change func(*certificatesv1.CertificateSigningRequest)) {
		request.Name, request.Spec.Username = name, bootstrapUser
		if change != nil {
			change(request)
		}
		b = b.WithObjects(request)
	}
	madeBy := func(groups ...string) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Groups = groups }
	}
	good := func() *certificatesv1.CertificateSigningRequest {
		return asks(t, "cluster1", subject("cluster1", "agent1"), key)
	}
	add("newer", good(), func(r *certificatesv1.CertificateSigningRequest) {
		r.CreationTimestamp = metav1.NewTime(start.Add(time.Hour))
	})
	add("good", good(), nil)
	add("own-renewal", good(),
		madeBy("system:open-cluster-management:cluster1", "system:open-cluster-management:managed-clusters"))
	add("cluster10", asks(t, "cluster10", subject("cluster10", "agent1"), key), nil)
	add("cluster10-by-cluster1", asks(t, "cluster10", subject("cluster10", "agent1"), key),
		madeBy("system:open-cluster-management:cluster1"))
	add("by-cluster10", good(),
		madeBy("system:open-cluster-management:cluster10", "system:open-cluster-management:managed-clusters"))
	add("by-iam-of-cluster10", good(), madeBy("open-cluster-management:cluster10"))
	add("subject-of-cluster10", asks(t, "cluster1", subject("cluster10", "agent1"), key), nil)
	add("one-group-too-many", asks(t, "cluster1", subject("cluster1", "agent1", "system:masters"), key), nil)
	add("signed", good(), func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") })
	add("denied", good(), func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
			Status: "True"}}
	})
	c := b.Build()
	for cluster, want := range map[string][]string{"cluster1": {"good", "own-renewal", "newer"},
		"cluster10": {"cluster10"},
		"":          {"cluster10", "good", "own-renewal", "newer"}, "cluster2": nil} {
		t.Run("cluster "+cluster, func(t *testing.T) {
			pending, err := csr.List(t.Context(), c, cluster, (*csr.Request).IsPending)
			var got []string
			for _, r := range pending {
				got = append(got, r.Object.Name)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %s, %v, want %s", strings.Join(got, " "), err, strings.Join(want, " "))
			}
		})
	}
}

// A list comes in pages, so that it needs little memory. An error of a later
// page ends it.
func TestListReadsPages(t *testing.T) {
	const requests, most = 45, 20
	key := ecKey(t)
	for name, failing := range map[string]string{"all pages": "", "the last page fails": "40"} {
		t.Run(name, func(t *testing.T) {
			paged := interceptor.NewClient(fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).Build(), interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					o := (&client.ListOptions{}).ApplyOptions(opts)
					if o.Limit < 1 || o.Limit > most {
						t.Errorf("a page has %d requests", o.Limit)
					}
					if o.Continue != "" && o.Continue == failing {
						return apierrors.NewResourceExpired("the list is too old")
					}
					at, _ := strconv.Atoi(o.Continue)
					//nolint:errcheck,forcetypeassert // a wrong type panics
					page := list.(*certificatesv1.CertificateSigningRequestList)
					for i := at; i < min(at+int(o.Limit), requests); i++ {
						r := asks(t, "cluster1", subject("cluster1", "agent1"), key)
						r.Name = fmt.Sprintf("csr%02d", i)
						page.Items = append(page.Items, *r)
					}
					if at += int(o.Limit); at < requests {
						page.Continue = strconv.Itoa(at)
					}
					return nil
				}})
			pending, err := csr.List(t.Context(), paged, "", (*csr.Request).IsPending)
			if apierrors.IsResourceExpired(err) != (failing != "") || failing == "" && (err != nil || len(pending) != requests) {
				t.Errorf("%d requests, %v, want %d or an error of page %q", len(pending), err, requests, failing)
			}
		})
	}
}
