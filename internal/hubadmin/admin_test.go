package hubadmin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/irsaname"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const arn = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"

func newHub(t *testing.T, clusters ...*ocm.ManagedCluster) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(ocm.AddToScheme(scheme), rbacv1.AddToScheme(scheme), certificatesv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&ocm.ManagedCluster{})
	for _, c := range clusters {
		b = b.WithObjects(c)
	}
	return b.Build()
}

func cluster(name string, accepted bool, conditions ...metav1.Condition) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepted},
		Status: ocm.ManagedClusterStatus{Conditions: conditions}}
}

func denied(ago time.Duration) metav1.Condition {
	return metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: ocm.ReasonHubDenied,
		LastTransitionTime: metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))}
}

// An accepted cluster has the claim that the hub recorded, whatever its annotations say now.
func TestClaim(t *testing.T) {
	recorded := map[string]string{regname.AuthTypeAnnotation: "mine", regname.ClaimAnnotation: "a claim"}
	for name, row := range map[string]struct {
		annotation, value string
		record            map[string]string
		accepted, fails   bool
		authType, claim   string
	}{
		"AWS":                   {annotation: awsirsa.ARNAnnotation, value: arn, authType: "aws-irsa", claim: arn},
		"AWS, as OCM writes it": {annotation: irsaname.OCMARNAnnotation, value: arn, authType: "aws-irsa", claim: arn},
		"no ARN":                {annotation: awsirsa.ARNAnnotation, value: "foo", authType: "csr", fails: true},
		"certificate":           {authType: "csr"},
		"recorded":              {annotation: awsirsa.ARNAnnotation, value: arn, record: recorded, accepted: true, authType: "mine", claim: "a claim"},
		"recorded, denied":      {annotation: awsirsa.ARNAnnotation, value: arn, record: recorded, authType: "aws-irsa", claim: arn},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster("shop", row.accepted)
			if row.annotation != "" {
				c.Annotations = map[string]string{row.annotation: row.value}
			}
			authType, claim, err := hubadmin.Claim(c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Annotations: row.record}})
			if authType != row.authType || claim != row.claim || (err != nil) != row.fails {
				t.Errorf("got %q, %q, %v", authType, claim, err)
			}
		})
	}
}

func TestClustersSaysWhatKeepsADeletedOne(t *testing.T) {
	now := metav1.Now()
	c := cluster("shop", true, metav1.Condition{Type: ocm.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: ocm.ReasonHubAccepted},
		metav1.Condition{Type: regname.ConditionDeleting, Status: metav1.ConditionFalse, Message: "an add-on\nis left"})
	c.DeletionTimestamp, c.Finalizers = &now, []string{ocm.Finalizer}
	all, err := hubadmin.Clusters(t.Context(), newHub(t, c))
	if err != nil || len(all) != 1 || !all[0].Deleting || all[0].Message != "an add-on is left" || all[0].Condition != "True" {
		t.Errorf("got %+v, %v", all, err)
	}
}

// The denial of a refused cluster begins now. The one that the hub has recorded keeps its time.
func TestRecordDenial(t *testing.T) {
	refused := denied(time.Hour)
	refused.Reason = "InvalidClaim"
	for name, row := range map[string]struct {
		cluster *ocm.ManagedCluster
		fresh   bool
		err     error
	}{
		"new":      {cluster("shop", false), true, nil},
		"refused":  {cluster("shop", false, refused), true, nil},
		"denied":   {cluster("shop", false, denied(time.Hour)), false, nil},
		"accepted": {cluster("shop", true), false, hubadmin.ErrAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			c := newHub(t, row.cluster)
			err := hubadmin.RecordDenial(t.Context(), c, "shop")
			if !errors.Is(err, row.err) || (err == nil) != (row.err == nil) {
				t.Fatalf("got %v, want %v", err, row.err)
			}
			got := &ocm.ManagedCluster{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: "shop"}, got); err != nil {
				t.Fatal(err)
			}
			since := hubadmin.Condition(got, ocm.ConditionHubAccepted).LastTransitionTime
			if hubadmin.IsDenied(got) != (row.err == nil) || row.err == nil && (time.Since(since.Time) < time.Minute) != row.fresh {
				t.Errorf("the conditions are %+v", got.Status.Conditions)
			}
		})
	}
}

func TestCleanUp(t *testing.T) {
	clusters := func() client.Client {
		return newHub(t, cluster("denied", false, denied(2*time.Hour)), cluster("just-denied", false, denied(time.Minute)),
			cluster("accepted-again", true, denied(2*time.Hour)), cluster("new", false))
	}
	for name, dryRun := range map[string]bool{"dry run": true, "for good": false} {
		t.Run(name, func(t *testing.T) {
			c, reported := clusters(), []string{}
			err := hubadmin.CleanUp(t.Context(), c, time.Now().Add(-time.Hour), dryRun, func(d hubadmin.Denied) {
				reported = append(reported, d.Name)
				if d.Err != nil || d.Changed || time.Since(d.Since) < time.Hour {
					t.Errorf("reported %+v", d)
				}
			})
			if err != nil || len(reported) != 1 || reported[0] != "denied" {
				t.Errorf("reported %q, %v", reported, err)
			}
			want := 3
			if dryRun {
				want = 4
			}
			if all := list(t.Context(), t, c); len(all) != want {
				t.Errorf("left %+v", all)
			}
		})
	}
}

func list(ctx context.Context, t *testing.T, c client.Client) []hubadmin.Cluster {
	t.Helper()
	all, err := hubadmin.Clusters(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
