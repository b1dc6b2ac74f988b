package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	hubARN     = "arn:aws:eks:eu-central-1:123456789012:cluster/hub"
	managedARN = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	image      = "registry.example/program:v1"
	odd        = `registry.example/program@sha256:0 "x": y`
)

// outline names the documents that are printed as the library has them, and
// shows the others.
func outline(printed string) string {
	known := map[string]string{}
	for name, manifest := range map[string]string{"ocm.CRD": ocm.CRD(), "addon.CRD": addon.CRD(),
		"HubRBAC":       manifests.HubRBAC(),
		"BootstrapRBAC": manifests.BootstrapRBAC(), "TokenRBAC": manifests.TokenRBAC(),
		"OCMAgentsRBAC": manifests.OCMAgentsRBAC(),
		"RelayRBAC":     manifests.RelayRBAC(), "RelayLegacyRBAC": manifests.RelayLegacyRBAC(),
		"RelayConstrainedRBAC": manifests.RelayConstrainedRBAC(),
		"AgentRBAC":            manifests.AgentRBAC(), "AgentAddOnRBAC": manifests.AgentAddOnRBAC(),
		"AgentStatusRBAC": manifests.AgentStatusRBAC(),
		"AWSAuthRBAC":     awsirsa.AWSAuthRBAC()} {
		for document := range strings.SplitSeq(manifest, "\n---\n") {
			objects, err := manifests.Parse(document)
			if err != nil {
				return err.Error()
			}
			known[strings.TrimSpace(strings.TrimPrefix(document, "---\n"))] = name + ": " + objects[0].GetKind() + " " +
				objects[0].GetName()
		}
	}
	documents := strings.Split(strings.TrimSuffix(printed, "\n"), "\n---\n")
	for i, document := range documents {
		if name, ok := known[document]; ok {
			documents[i] = name
		}
	}
	return strings.Join(documents, "\n---\n") + "\n"
}

// The files in testdata are outlines of what wid hub init and wid join print.
func TestManifestsAreAsPrinted(t *testing.T) {
	csr, aws := []string{"csr"}, []string{"aws-irsa"}
	hub, join := manifests.Hub, manifests.Agent
	to := &bootstrap.ClusterInfo{Server: "https://hub.example:6443", CAData: []byte("ca")}
	const token = "abcdef.0123456789abcdef"
	for name, build := range map[string]func() (string, error){
		"hub": func() (string, error) { return hub(manifests.HubOptions{Image: image, AuthTypes: csr}) },
		"hub-all": func() (string, error) {
			return hub(manifests.HubOptions{Image: odd, AuthTypes: csr, AddOnAuthTypes: []string{"csr", "token"},
				OCMAgents: true, AutoApproveUsers: []string{odd}, CleanupImage: odd, Replicas: new(int32(3)),
				ImagePullSecrets: []string{"registry"}})
		},
		"hub-aws": func() (string, error) {
			return hub(manifests.HubOptions{Image: image, AuthTypes: aws, ARN: hubARN})
		},
		"hub-aws-addons": func() (string, error) {
			return hub(manifests.HubOptions{Image: image, AuthTypes: aws, ARN: hubARN, AddOnAuthTypes: csr})
		},
		"hub-mixed": func() (string, error) {
			return hub(manifests.HubOptions{Image: image, AuthTypes: []string{"csr", "aws-irsa"}, ARN: hubARN,
				AutoApproveARNs: []string{"arn:aws:eks:*:222222222222:cluster/prod-*"}, CleanupImage: image})
		},
		"hub-relay": func() (string, error) {
			return hub(manifests.HubOptions{Image: image, AuthTypes: csr, Relay: manifests.RelayConstrained,
				ImagePullSecrets: []string{"registry"}})
		},
		"hub-relay-legacy": func() (string, error) {
			return hub(manifests.HubOptions{Image: image, AuthTypes: csr, Relay: manifests.RelayLegacy})
		},
		"hub-relay-aws": func() (string, error) { // tokens need no impersonation
			return hub(manifests.HubOptions{Image: image, AuthTypes: aws, ARN: hubARN, Relay: manifests.RelayConstrained})
		},
		"agent": func() (string, error) {
			return join(manifests.AgentOptions{Image: image, Cluster: "cluster1", AuthType: "csr", Hub: to, Token: token})
		},
		"agent-token": func() (string, error) {
			return join(manifests.AgentOptions{Image: odd, Cluster: "cluster1", AuthType: "csr", AddOnAuthType: "token",
				AddOnTokenSeconds: 3600, Hub: to, Token: token,
				Replicas: new(int32(1)), ImagePullSecrets: []string{"registry"},
				ExtraArgs: []string{"--metrics-bind-address=0", "--cluster-status=false"}})
		},
		"agent-aws": func() (string, error) {
			return join(manifests.AgentOptions{Image: image, Cluster: "cluster1", AuthType: "aws-irsa", HubARN: hubARN,
				ManagedARN: managedARN, AddOnAuthType: "csr", Hub: to, Token: token})
		},
	} {
		t.Run(name, func(t *testing.T) {
			printed, err := build()
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if got := outline(printed); got != string(want) {
				t.Errorf("the manifests are\n%s", got)
			}
		})
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	hub := func(change func(*manifests.HubOptions)) error {
		o := manifests.HubOptions{Image: image, AuthTypes: []string{"aws-irsa"}, ARN: hubARN}
		change(&o)
		_, err := manifests.Hub(o)
		return err
	}
	agent := func(change func(*manifests.AgentOptions)) error {
		o := manifests.AgentOptions{Image: image, Cluster: "cluster1", AuthType: "aws-irsa", HubARN: hubARN,
			ManagedARN: managedARN}
		change(&o)
		_, err := manifests.Agent(o)
		return err
	}
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"hub":                   {hub(func(*manifests.HubOptions) {}), ""},
		"hub without image":     {hub(func(o *manifests.HubOptions) { o.Image = "" }), "need an image"},
		"hub without auth type": {hub(func(o *manifests.HubOptions) { o.AuthTypes = nil }), "an auth type"},
		"hub, unknown auth type": {hub(func(o *manifests.HubOptions) {
			o.AuthTypes = []string{"ldap"}
		}), `unknown auth type "ldap" of clusters: use one of aws-irsa, csr`},
		"hub, add-ons by ldap": {hub(func(o *manifests.HubOptions) {
			o.AddOnAuthTypes = []string{"ldap"}
		}), `"ldap" of add-ons: use one of csr, token`},
		"hub, unknown relay": {hub(func(o *manifests.HubOptions) {
			o.Relay = "magic"
		}), `unknown relay "magic": use one of constrained, legacy`},
		"hub without ARN": {hub(func(o *manifests.HubOptions) { o.ARN = "" }), `"" is not the ARN`},
		"hub, users without csr": {hub(func(o *manifests.HubOptions) {
			o.AutoApproveUsers = []string{"x"}
		}), `approval of the user "x" has no effect without the auth type csr: add that auth type`},
		"hub, ARNs without aws-irsa": {hub(func(o *manifests.HubOptions) {
			o.AuthTypes, o.AutoApproveARNs = []string{"csr"}, []string{"arn:aws:eks:*:222222222222:cluster/*"}
		}), "has no effect without the auth type aws-irsa"},
		"hub, ARNs of any account": {hub(func(o *manifests.HubOptions) {
			o.AutoApproveARNs = []string{"arn:aws:eks:*:*:cluster/*"}
		}), "the pattern \"arn:aws:eks:*:*:cluster/*\" matches clusters of accounts that are not yours"},
		"hub, name too long": {hub(func(o *manifests.HubOptions) {
			o.ARN += strings.Repeat("b", 30)
		}), "has 33 characters"},
		"agent":                 {agent(func(*manifests.AgentOptions) {}), ""},
		"agent without image":   {agent(func(o *manifests.AgentOptions) { o.Image = "" }), "need an image"},
		"agent without cluster": {agent(func(o *manifests.AgentOptions) { o.Cluster = "" }), "the name of the cluster"},
		"agent, long namespace": {agent(func(o *manifests.AgentOptions) {
			o.Namespace = strings.Repeat("a", 58)
		}), "cannot be the namespace of an agent: use at most 57 lower-case letters"},
		"agent, namespace of add-ons": {agent(func(o *manifests.AgentOptions) {
			o.Namespace = "open-cluster-management-agent-addon"
		}), "without the prefix kube- and the suffix -addon"},
		"agent, namespace of Kubernetes": {agent(func(o *manifests.AgentOptions) {
			o.Namespace = "kube-system"
		}), `"kube-system" cannot be the namespace`},
		"agent without auth type": {agent(func(o *manifests.AgentOptions) { o.AuthType = "" }), `unknown auth type ""`},
		"agent, add-ons by ldap": {agent(func(o *manifests.AgentOptions) {
			o.AddOnAuthType = "ldap"
		}), `"ldap" of add-ons`},
		"agent without hub's ARN":   {agent(func(o *manifests.AgentOptions) { o.HubARN = "" }), `"" is not the ARN`},
		"agent without its own ARN": {agent(func(o *manifests.AgentOptions) { o.ManagedARN = "" }), `"" is not the ARN`},
	} {
		t.Run(name, func(t *testing.T) {
			if (row.err != nil) != (row.want != "") || row.err != nil && !strings.Contains(row.err.Error(), row.want) {
				t.Errorf("got %v, want %q", row.err, row.want)
			}
		})
	}
}

// A base of kustomize holds no credential.
func TestAgentWithoutAHubHasNoSecret(t *testing.T) {
	printed, err := manifests.Agent(manifests.AgentOptions{Image: image, Cluster: "cluster1", AuthType: "csr"})
	if err != nil || strings.Contains(printed, "kind: Secret") {
		t.Errorf("%v:\n%s", err, printed)
	}
}

func TestParseRefusesAKeyThatOccursTwice(t *testing.T) {
	if objects, err := manifests.Parse("kind: A\n", "kind: B\nkind: C\n"); err == nil ||
		!strings.Contains(err.Error(), "already set") {
		t.Errorf("%v, %v", objects, err)
	}
}

// The Deployment goes first, and the namespace of add-ons stays.
func TestAgentObjects(t *testing.T) {
	for rbac, want := range map[bool]string{
		false: "Secret hub-kubeconfig-secret, Secret bootstrap-hub-kubeconfig, NetworkPolicy registration-agent, PodDisruptionBudget registration-agent, Deployment registration-agent",
		true: "Namespace open-cluster-management-agent, ServiceAccount registration-agent, Role registration-agent, RoleBinding registration-agent, " +
			"Role registration-agent-addon, RoleBinding registration-agent-addon, " +
			"ClusterRole open-cluster-management-agent:cluster-status, " +
			"ClusterRoleBinding open-cluster-management-agent:cluster-status, Lease registration-agent, " +
			"Secret hub-kubeconfig-secret, Secret bootstrap-hub-kubeconfig, NetworkPolicy registration-agent, PodDisruptionBudget registration-agent, Deployment registration-agent",
	} {
		objects, err := manifests.AgentObjects(agent.DefaultNamespace, rbac)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range objects {
			names = append(names, o.GetKind()+" "+o.GetName())
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("rbac %t: %s", rbac, got)
		}
	}
}

// Two agents of one cluster share no object.
func TestObjectsOfTwoAgentsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, namespace := range []string{agent.DefaultNamespace, "second"} {
		printed, err := manifests.Agent(manifests.AgentOptions{Image: image, Cluster: "cluster1", Namespace: namespace,
			AuthType: "csr", AddOnAuthType: "token", Hub: &bootstrap.ClusterInfo{Server: "https://hub.example"}})
		if err != nil {
			t.Fatal(err)
		}
		if namespace == "second" && (strings.Contains(printed, agent.DefaultNamespace) ||
			!strings.Contains(printed, `"--namespace=second"`)) {
			t.Errorf("the agent is not in its namespace alone:\n%s", printed)
		}
		applied, err := manifests.Parse(printed)
		if err != nil {
			t.Fatal(err)
		}
		removed, err := manifests.AgentObjects(namespace, true)
		if err != nil {
			t.Fatal(err)
		}
		own := map[string]bool{}
		for _, o := range append(applied, removed...) {
			own[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
		}
		for name := range own {
			if seen[name] {
				t.Errorf("both agents have %s", name)
			}
			seen[name] = true
		}
	}
}
