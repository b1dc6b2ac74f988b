package hubadmin_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/hubadmin"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// askedBy fills in the requester, as an API server does.
func askedBy(t *testing.T, c client.Client, user string, groups ...string) client.Client {
	t.Helper()
	watching, ok := c.(client.WithWatch)
	if !ok {
		t.Fatal("the client cannot watch")
	}
	return interceptor.NewClient(watching, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
			r.Spec.Username, r.Spec.Groups = user, groups
		}
		return c.Create(ctx, o, opts...)
	}})
}

// Only the request that is beyond doubt is picked without its name.
func TestRequest(t *testing.T) {
	const csr, aws = registration.AuthTypeCSR, registration.AuthTypeAWS
	bootstrap := func(c client.Client) string {
		return regtest.Ask(t, c, askedBy(t, c, "system:bootstrap:abcdef", registration.BootstrapGroup), "shop", "agent1")
	}
	stranger := func(c client.Client) string { return regtest.Ask(t, c, askedBy(t, c, "alice"), "shop", "agent2") }
	works := cluster("shop", true, metav1.Condition{Type: ocm.ConditionJoined, Status: metav1.ConditionTrue}, metav1.Condition{Type: ocm.ConditionAvailable, Status: metav1.ConditionTrue})
	for name, row := range map[string]struct {
		cluster  *ocm.ManagedCluster
		recorded string // name of the agent
		authType string
		ask      []func(client.Client) string
		named    bool // the last request is
		cause    hubadmin.RequestCause
		picks    bool
	}{
		"none":                         {authType: csr},
		"one of a bootstrap user":      {authType: csr, ask: []func(client.Client) string{bootstrap}, picks: true},
		"one of another user":          {authType: csr, ask: []func(client.Client) string{stranger}, cause: hubadmin.NotBootstrapUser},
		"one of another user, named":   {authType: csr, ask: []func(client.Client) string{stranger}, named: true, picks: true},
		"two":                          {authType: csr, ask: []func(client.Client) string{stranger, bootstrap}, cause: hubadmin.SeveralRequests},
		"two, one is named":            {authType: csr, ask: []func(client.Client) string{stranger, bootstrap}, named: true, picks: true},
		"the agent works":              {cluster: works, authType: csr, ask: []func(client.Client) string{bootstrap}, cause: hubadmin.AnotherAgent},
		"the agent works, named":       {cluster: works, authType: csr, ask: []func(client.Client) string{bootstrap}, named: true, picks: true},
		"another agent is recorded":    {recorded: "agent9", authType: csr, ask: []func(client.Client) string{bootstrap}, cause: hubadmin.AnotherAgent},
		"a cluster with an ARN":        {authType: aws, ask: []func(client.Client) string{bootstrap}},
		"a cluster with an ARN, named": {authType: aws, ask: []func(client.Client) string{bootstrap}, named: true, cause: hubadmin.RequestNotFound},
		"none with that name":          {authType: csr, ask: []func(client.Client) string{func(client.Client) string { return "x" }}, named: true, cause: hubadmin.RequestNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if row.cluster == nil {
				row.cluster = cluster("shop", false)
			}
			c := newHub(t)
			if row.recorded != "" {
				role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName("shop"), Annotations: map[string]string{regname.AgentAnnotation: row.recorded}}}
				if err := c.Create(t.Context(), role); err != nil {
					t.Fatal(err)
				}
			}
			last, named := "", ""
			for _, ask := range row.ask {
				last = ask(c)
			}
			if row.named {
				named = last
			}
			picked, err := hubadmin.Request(t.Context(), c, row.cluster, row.authType, named)
			var refused *hubadmin.RequestError
			if errors.As(err, &refused) != (row.cause != "") || refused != nil && (refused.Cause != row.cause || !strings.Contains(refused.Error(), `cluster "shop"`)) || err != nil && refused == nil {
				t.Fatalf("got %v, want %q", err, row.cause)
			}
			if (picked != nil) != row.picks || picked != nil && picked.Name != last {
				t.Errorf("picked %+v", picked)
			}
		})
	}
}
