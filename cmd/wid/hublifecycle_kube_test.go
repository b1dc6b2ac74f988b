package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// lifecycle runs the commands of a section of docs/registration.md, word for word.
type lifecycle struct {
	*hubWorld
	programs *world
	left     []string
	overlay  string // the command that makes its kubeconfig
}

func newLifecycle(t *testing.T) *lifecycle {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "registration.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "## Install, upgrade, back up, remove\n")
	section, overlay, _ := strings.Cut(section, "\n### With kustomize\n")
	l := &lifecycle{hubWorld: newHubWorld(t, "namespace"), programs: newWorld(t), overlay: strings.Split(overlay, "```")[1]}
	for i, block := range strings.Split(section, "```") {
		if i%2 == 1 {
			l.left = append(l.left, strings.Split(strings.TrimSpace(strings.TrimPrefix(block, "sh\n")), "\n")...)
		}
	}
	return l
}

// run runs the next command, and returns what it prints.
func (l *lifecycle) run(begins string, env ...string) string {
	l.t.Helper()
	if len(l.left) == 0 || !strings.HasPrefix(l.left[0], begins) {
		l.t.Fatalf("%s is not the first of %q", begins, l.left)
	}
	r := l.programs.exec(l.t, "", append(env, "KUBECONFIG="+os.Getenv("KUBECONFIG")), "bash", "-euc", l.left[0])
	l.left = l.left[1:]
	if r.code != 0 {
		l.t.Fatalf("%s: %+v", begins, r)
	}
	return r.stdout + r.stderr
}

// kubelet reports the replicas of a Deployment as available, once it has the image.
func (l *lifecycle) kubelet(c client.Client, namespace, name, image string) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) { // until it is stopped
			d := &appsv1.Deployment{}
			if c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d) != nil || d.Spec.Template.Spec.Containers[0].Image != image {
				return false, nil //nolint:nilerr // it is not there yet
			}
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			return c.Status().Update(ctx, d) == nil, nil
		})
	})
	return func() { cancel(); running.Wait() }
}

// objects lists all objects of a cluster, apart from those that expire.
func objects(t *testing.T, config *rest.Config) (names []string) {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := metadata.NewForConfigOrDie(config)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "componentstatuses" {
				continue
			}
			found, err := all.Resource(group.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", r.Name, err)
			}
			for _, o := range found.Items {
				names = append(names, group.Group+" "+r.Name+" "+o.Namespace+"/"+o.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Hub and agent are installed, upgraded and removed as docs/registration.md says. Nothing is left.
func TestInstallUpgradeRemove(t *testing.T) {
	l := newLifecycle(t)
	must(t, "bootstrap", "publish", "--kubeconfig="+l.hubKubeconfig)
	var before [2][]string
	for i, config := range []*rest.Config{l.hubConfig, l.managedConfig} {
		before[i] = objects(t, config)
	}
	stop := l.kubelet(l.hub, regname.HubNamespace, regname.HubDeployment, "registry.example/wid-hub:v1")
	out := l.run("wid hub init")
	stop()
	stopHub := l.runHub()
	_, line, _ := strings.Cut(out, "\nwid ")
	printed := strings.Fields(line)
	l.checkKubeconfigOfOverlay("TOKEN="+printed[2], "HUB="+printed[4], "PIN="+printed[6])
	l.run("wid join", "TOKEN="+printed[2], "HUB="+printed[4], "PIN="+printed[6])
	stopAgent := l.runAgentOf("cluster1")
	l.run("wid hub accept")

	stop = l.kubelet(l.hub, regname.HubNamespace, regname.HubDeployment, "registry.example/wid-hub:v2")
	l.run("wid hub init")
	stop()
	stop = l.kubelet(l.managed, agent.DefaultNamespace, regname.AgentName, "registry.example/wid-agent:v2")
	if out := l.run("wid join"); !strings.Contains(out, `The agent of cluster "cluster1" has the image "registry.example/wid-agent:v2"`) {
		t.Errorf("join says %s", out)
	}
	stop()
	for range 2 {
		l.run("kubectl")
	}
	stopAgent()
	stopHub()
	recorded := l.agentOf("cluster1")
	l.lose("cluster1")
	l.run("wid hub init")
	for range 3 {
		l.run("kubectl")
	}
	l.runHub()
	l.runAgentOf("cluster1")
	l.until("the restored cluster is available", func() bool {
		all := l.status()
		return len(all) == 1 && all[0].Accepted && all[0].Joined == "True" && all[0].Available == "True" && all[0].Condition == "True"
	})
	if now := l.agentOf("cluster1"); recorded == "" || now != recorded {
		t.Errorf("the agent %q was recorded, and %q is after the restore", recorded, now)
	}

	l.run("wid unjoin")
	for len(l.left) > 0 {
		l.run("")
	}
	for i, config := range []*rest.Config{l.hubConfig, l.managedConfig} {
		if after := objects(t, config); !slices.Equal(before[i], after) {
			t.Errorf("cluster %d: left are %q, missing are %q", i, minus(after, before[i]), minus(before[i], after))
		}
	}
}

// checkKubeconfigOfOverlay reaches the hub with the file that the documented command writes.
func (l *lifecycle) checkKubeconfigOfOverlay(env ...string) {
	l.t.Helper()
	command := strings.TrimPrefix(l.overlay, "sh\n") + "kubectl --kubeconfig kubeconfig auth whoami -o jsonpath='{.status.userInfo.groups}'"
	r := l.programs.exec(l.t, "", append(env, "KUBECONFIG="+os.Getenv("KUBECONFIG")), "bash", "-euo", "pipefail", "-c", command)
	if r.code != 0 || !strings.Contains(r.stdout, registration.BootstrapGroup) {
		l.t.Errorf("%s: %+v", command, r)
	}
}

// agentOf returns the agent in the record of a cluster.
func (l *lifecycle) agentOf(cluster string) string {
	l.t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := l.hub.Get(l.t.Context(), client.ObjectKey{Name: registration.ClusterRoleName(cluster)}, role); err != nil {
		l.t.Fatal(err)
	}
	return role.Annotations[regname.AgentAnnotation]
}

// lose deletes what the hub knows of a cluster. Neither its finalizers nor the hub program revoke anything, as if etcd were lost.
func (l *lifecycle) lose(cluster string) {
	l.t.Helper()
	ctx, labelled := l.t.Context(), client.MatchingLabels{ocm.ClusterNameLabel: cluster}
	must := func(err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
	}
	drop := func(o client.Object) {
		l.t.Helper()
		must(client.IgnoreNotFound(l.hub.Delete(ctx, o)))
		must(client.IgnoreNotFound(l.hub.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		l.until(o.GetName()+" is gone", func() bool { return apierrors.IsNotFound(l.hub.Get(ctx, client.ObjectKeyFromObject(o), o)) })
	}
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	must(l.hub.List(ctx, roles, client.InNamespace(cluster)))
	must(l.hub.List(ctx, bindings, client.InNamespace(cluster)))
	for i := range bindings.Items {
		drop(&bindings.Items[i])
	}
	for i := range roles.Items {
		drop(&roles.Items[i])
	}
	drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
	drop(&ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
	must(l.hub.DeleteAllOf(ctx, &rbacv1.ClusterRoleBinding{}, labelled))
	must(l.hub.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, labelled))
}

func minus(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
