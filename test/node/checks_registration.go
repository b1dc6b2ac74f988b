//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// registrationState is what the checks of registration hand on.
type registrationState struct {
	before   []string // objects before the installation
	joinLine string
}

// registrationChecks runs the commands of docs/registration.md and
// docs/registration-operate.md. Hub and managed cluster are the same cluster.
func registrationChecks() []check {
	s := &registrationState{}
	return []check{
		{name: "wid hub init", run: s.hubInit, needed: true},
		{name: "wid join, accept: Joined and Available", run: s.join, needed: true},
		{name: "memory at rest is what the manifests request", run: memory(ocm.HubNamespace, agent.DefaultNamespace)},
		{name: "the leader of the hub is killed, the other replica serves", run: hubLeaderKilled},
		{name: "the agent is upgraded without a token", run: agentUpgraded},
		{name: "wid unjoin", run: unjoin, needed: true},
		{name: "removal leaves nothing", run: s.removed},
	}
}

func (s *registrationState) hubInit(ctx context.Context, c *cluster) (err error) {
	if s.before, err = c.objects(ctx); err != nil {
		return err
	}
	out, err := c.sh(ctx, "wid hub init --context hub --image "+repository+"wid-hub:v1 --apply --wait")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "wid join ") {
			s.joinLine = line
			return nil
		}
	}
	return fmt.Errorf("wid hub init prints no line with wid join: %s", out)
}

// join runs the line that wid hub init printed, with the names that a person
// fills in.
func (s *registrationState) join(ctx context.Context, c *cluster) error {
	fields := strings.Fields(s.joinLine)
	for i, value := range map[string]string{"--cluster-name": "cluster1", "--image": repository + "wid-agent:v1",
		"--context": "managed-0"} {
		at := slices.Index(fields, i)
		if at < 0 || at+1 == len(fields) {
			return fmt.Errorf("%s is missing in: %s", i, s.joinLine)
		}
		fields[at+1] = value
	}
	if _, err := c.sh(ctx, strings.Join(fields, " ")); err != nil {
		return err
	}
	if _, err := c.sh(ctx, `wid hub accept --context hub --clusters cluster1 --wait`); err != nil {
		return err
	}
	return c.until(ctx, time.Minute, "the cluster is Joined and Available", clusterAvailable(c))
}

func clusterAvailable(c *cluster) func(context.Context) error {
	return func(ctx context.Context) error {
		var cluster ocm.ManagedCluster
		if err := c.Get(ctx, client.ObjectKey{Name: "cluster1"}, &cluster); err != nil {
			return err
		}
		for _, condition := range []string{ocm.ConditionHubAccepted, ocm.ConditionJoined, ocm.ConditionAvailable} {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, condition) {
				return fmt.Errorf("conditions of cluster1: %+v", cluster.Status.Conditions)
			}
		}
		return nil
	}
}

// hubLeaderKilled ends the leader with SIGKILL, so that its Lease has to
// expire. A second cluster shows that the hub works.
func hubLeaderKilled(ctx context.Context, c *cluster) error {
	pods, err := c.pods(ctx, ocm.HubNamespace, "app="+ocm.HubDeployment)
	if err != nil {
		return err
	}
	if len(pods) != 2 {
		return fmt.Errorf("the hub has %d replicas instead of 2", len(pods))
	}
	leader, err := c.leader(ctx, ocm.HubNamespace)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if strings.HasPrefix(leader, pod.Name+"_") {
			if err := c.killContainer(ctx, &pod, ocm.Container); err != nil {
				return err
			}
		}
	}
	if err := c.until(ctx, 40*time.Second, "another replica leads", func(ctx context.Context) error {
		now, err := c.leader(ctx, ocm.HubNamespace)
		if err == nil && (now == leader || now == "") {
			err = fmt.Errorf("the leader is still %q", now)
		}
		return err
	}); err != nil {
		return err
	}
	second := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster2"},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := c.Create(ctx, second); err != nil {
		return err
	}
	return c.until(ctx, 20*time.Second, "the hub accepts another cluster", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Name: "cluster2"}, &corev1.Namespace{})
	})
}

// leader returns the holder of the Lease in a namespace.
func (c *cluster) leader(ctx context.Context, namespace string) (string, error) {
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	for _, lease := range leases.Items {
		if lease.Spec.HolderIdentity != nil {
			return *lease.Spec.HolderIdentity, nil
		}
	}
	return "", fmt.Errorf("no Lease in namespace %q has a holder", namespace)
}

func agentUpgraded(ctx context.Context, c *cluster) error {
	if err := c.ctr(ctx, "images", "tag", "--force", repository+"wid-agent:v1", repository+"wid-agent:v2"); err != nil {
		return err
	}
	// The new agent renews its Lease so often from the start, the old one from
	// the next minute on.
	if _,
		err := c.sh(ctx,
		`kubectl --context hub patch managedcluster cluster1 --type merge -p '{"spec": {"leaseDurationSeconds": 5}}'
wid join --context managed-0 --image `+repository+`wid-agent:v2 --apply --wait
kubectl --context managed-0 -n open-cluster-management-agent \
  rollout status deployment registration-agent`); err != nil {
		return err
	}
	var program appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.AgentName}, &program); err != nil {
		return err
	}
	if image := program.Spec.Template.Spec.Containers[0].Image; image != repository+"wid-agent:v2" {
		return fmt.Errorf("the agent has the image %q", image)
	}
	lease, err := c.agentLease(ctx)
	if err != nil {
		return err
	}
	if err := c.until(ctx, 40*time.Second, "the new agent renews the Lease", func(ctx context.Context) error {
		now, err := c.agentLease(ctx)
		if err == nil && !now.After(lease) {
			err = fmt.Errorf("renewed at %s", now)
		}
		return err
	}); err != nil {
		return err
	}
	return clusterAvailable(c)(ctx)
}

func (c *cluster) agentLease(ctx context.Context) (time.Time, error) {
	var lease coordinationv1.Lease
	err := c.Get(ctx, client.ObjectKey{Namespace: "cluster1", Name: ocm.LeaseName}, &lease)
	if err == nil && lease.Spec.RenewTime == nil {
		err = errors.New("the Lease was never renewed")
	}
	if err != nil {
		return time.Time{}, err
	}
	return lease.Spec.RenewTime.Time, nil
}

func unjoin(ctx context.Context, c *cluster) error {
	if _, err := c.sh(ctx, "wid unjoin --context managed-0 --cluster-name cluster1 --purge"); err != nil {
		return err
	}
	return c.until(ctx, 30*time.Second, "the hub takes away the access", func(ctx context.Context) error {
		var cluster ocm.ManagedCluster
		if err := c.Get(ctx, client.ObjectKey{Name: "cluster1"}, &cluster); err != nil {
			return err
		}
		if condition := meta.FindStatusCondition(cluster.Status.Conditions, ocm.ConditionHubAccepted); condition == nil ||
			condition.Reason != "HubClusterAdminDenied" {
			return fmt.Errorf("condition %+v", condition)
		}
		return nil
	})
}

func (s *registrationState) removed(ctx context.Context, c *cluster) error {
	if _,
		err := c.sh(ctx, `kubectl --context managed-0 delete namespace open-cluster-management-agent-addon --ignore-not-found
kubectl --context hub delete managedclusters --all
kubectl --context hub delete namespaces,certificatesigningrequests --selector open-cluster-management.io/cluster-name
wid hub init --image any --addon-registration-auth csr,token --ocm-agents --cleanup-image any >hub.yaml
kubectl --context hub delete --ignore-not-found --filename hub.yaml
kubectl --context hub --namespace kube-system delete secrets \
  --field-selector type=bootstrap.kubernetes.io/token`); err != nil {
		return err
	}
	return c.onlyObjects(ctx, s.before)
}
