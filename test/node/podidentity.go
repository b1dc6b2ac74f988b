//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

const (
	iamSystem  = "iam-system"
	serverName = "iam-credentials-provider"
	serverRole = roleARN + serverName
	tenant     = "team-a"
)

// install applies the overlay of docs/podidentity.md with the address of this
// API server, the folder of this tree, and the images of this build.
func (s *podIdentityState) install(ctx context.Context, c *cluster) (err error) {
	if s.before, err = c.objects(ctx); err != nil {
		return err
	}
	if err := c.trustIssuer(); err != nil {
		return err
	}
	c.trustServiceAccount(serverName, iamSystem, serverName)
	if err := c.writeOverlay(); err != nil {
		return err
	}
	_,
		err = c.sh(ctx,
		"kubectl apply -k overlay/node\nkubectl -n iam-system wait --for=condition=Available deployment --all --timeout=2m")
	return err
}

func (c *cluster) writeOverlay() error {
	overlay, err := documented("podidentity.md", "name: AWS_WEB_IDENTITY_TOKEN_FILE")
	if err != nil {
		return err
	}
	config, err := filepath.Abs(filepath.Join(root, "config", serverName))
	relative, relErr := filepath.Rel(c.path("overlay", "prod"), config)
	if err := errors.Join(err, relErr); err != nil {
		return err
	}
	const remote = "https://github.com/workloadid/workloadid//config/" + serverName
	lines := strings.Split(overlay, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "- "+remote) {
			lines[i] = "- " + relative
		}
	}
	overlay = strings.Replace(strings.Join(lines, "\n"), "192.0.2.0/28", nodeIP+"/32", 1)
	return errors.Join(writeFile(c.path("overlay", "prod", "kustomization.yaml"), overlay),
		writeFile(c.path("overlay", "node", "kustomization.yaml"), `resources:
- ../prod
images:
- {name: `+repository+serverName+`, newTag: v1}
configMapGenerator:
- {name: settings, namespace: iam-system, behavior: merge, literals: ["POD_IMAGE=`+repository+`iam-credentials-pod:v1"]}
`))
}

// bind creates the objects of docs/podidentity.md, and a role with the trust
// policy that wid prints.
func bind(ctx context.Context, c *cluster) error {
	err := c.until(ctx, 20*time.Second, "the kinds are served", func(ctx context.Context) error {
		return c.apply(ctx, `apiVersion: iam.aws.k8s.io/v1alpha1
kind: IAMRoleAllowList
metadata:
  name: cluster
spec:
  rules:
  - namespaces: [team-a, team-b, team-quota, team-limits]
    roles: ["arn:aws:iam::123456789012:role/team-a/*"]
---
apiVersion: v1
kind: Namespace
metadata:
  name: team-a
  labels:
    iam.aws.k8s.io/injection: enabled
    pod-security.kubernetes.io/enforce: restricted
---
apiVersion: v1
kind: Namespace
metadata:
  name: team-b
  labels:
    iam.aws.k8s.io/injection: enabled
`)
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"reporting", "short", "doomed"} {
		if err := c.bindAccount(ctx, tenant, name); err != nil {
			return err
		}
	}
	return nil
}

// bindAccount binds a ServiceAccount to a role of its name that trusts it.
func (c *cluster) bindAccount(ctx context.Context, namespace, name string) error {
	// The allow-list takes effect when the API server has seen it.
	if err := c.until(ctx, 20*time.Second, "binding "+name, func(ctx context.Context) error {
		return c.apply(ctx, binding(namespace, name, "team-a/"+name))
	}); err != nil {
		return err
	}
	policy, err := c.sh(ctx,
		fmt.Sprintf("wid pod-identity trust-policy -n %s %s --cluster prod --server-role %s", namespace, name, serverRole))
	if err != nil {
		return err
	}
	return c.createRole(ctx, "team-a/"+name, policy)
}

func binding(namespace, name, role string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {namespace: %[1]s, name: %[2]s}
---
apiVersion: iam.aws.k8s.io/v1alpha1
kind: IAMBinding
metadata:
  name: %[2]s
  namespace: %[1]s
spec:
  aws:
    roleArn: %[3]s
  serviceAccountRef:
    name: %[2]s
`, namespace, name, roleARN+role)
}

// bindingShown waits for the conditions. The server tries a role that it could
// not assume again after a minute.
func bindingShown(ctx context.Context, c *cluster) error {
	return c.until(ctx, 80*time.Second, "the conditions are true", func(ctx context.Context) error {
		var b v1alpha1.IAMBinding
		if err := c.Get(ctx, client.ObjectKey{Namespace: tenant, Name: "reporting"}, &b); err != nil {
			return err
		}
		for _, condition := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionRoleAssumable} {
			if !meta.IsStatusConditionTrue(b.Status.Conditions, condition) {
				return fmt.Errorf("conditions: %+v", b.Status.Conditions)
			}
		}
		return nil
	})
}

// shorten makes AWS issue sessions of two minutes to a ServiceAccount. Its
// sidecars renew them after 50 seconds.
func (c *cluster) shorten(serviceAccount string) (end func()) {
	return c.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole",
		Match: func(call cloudtest.Call) bool {
			return strings.HasSuffix(call.Parameters["RoleSessionName"], "."+serviceAccount)
		},
		Rewrite: func(body []byte) []byte {
			return expiration.ReplaceAll(body,
				[]byte("<Expiration>"+time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339)+"</Expiration>"))
		}})
}
