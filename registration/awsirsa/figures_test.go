package awsirsa_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Of cmd/wid-hub, and of AWS.
const (
	workers = 8
	latency = 50 * time.Millisecond
)

func nthCluster(i int) string { return fmt.Sprint("shop", i) }
func nthARN(i int) string     { return fmt.Sprint(managedARN, i) }

// accept creates accepted clusters, of which the hub does not know yet.
func (w *hubEnvironment) accept(n int) {
	w.t.Helper()
	for i := range n {
		cluster := &ocm.ManagedCluster{Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true},
			ObjectMeta: metav1.ObjectMeta{Name: nthCluster(i), Annotations: map[string]string{awsirsa.ARNAnnotation: nthARN(i)}}}
		regtest.Must(w.t, w.kube.Create(w.t.Context(), cluster))
	}
}

// reconcileAll reconciles each cluster once, and returns how long all took, and
// all but the first.
func (w *hubEnvironment) reconcileAll(n int) (all, others time.Duration) {
	queue, begin := make(chan int), time.Now()
	var running sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		running.Go(func() {
			for i := range queue {
				w.reconcile(nthCluster(i))
				mu.Lock()
				if i > 0 {
					others = time.Since(begin)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		queue <- i
	}
	close(queue)
	running.Wait()
	return time.Since(begin), others
}

// Fewer clusters than a hub may have, since the API server from memory is slow.
// The calls of AWS are counted for each cluster.
const clusters = 96

func TestResyncAndRestartOfAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHubEnvironment(t)
		w.accept(clusters)
		w.reconcileAll(clusters)
		if len(w.cloud.roles) != clusters || len(w.cloud.entries) != clusters {
			t.Fatalf("%d roles, %d access entries", len(w.cloud.roles), len(w.cloud.entries))
		}
		w.cloud.reset()
		if w.reconcileAll(clusters); len(w.cloud.calls) > 0 {
			t.Errorf("a resync makes %d calls of AWS", len(w.cloud.calls))
		}
		w.restart()
		w.cloud.delay = latency
		took, _ := w.reconcileAll(clusters)
		if len(w.cloud.calls) != 3*clusters || w.cloud.writes > 0 || took > clusters/workers*3*latency {
			t.Errorf("a restart makes %d calls of AWS, %d of them writes, in %s", len(w.cloud.calls), w.cloud.writes, took)
		}
	})
}

// hanging is an IAM that never answers for one role.
type hanging struct {
	*cloud
	role string
}

func (h hanging) GetRole(ctx context.Context, in *iam.GetRoleInput,
	opts ...func(*iam.Options)) (*iam.GetRoleOutput, error) {
	if *in.RoleName == h.role {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.cloud.GetRole(ctx, in, opts...)
}

func TestOneHangingClusterDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 5
		w := newHubEnvironment(t)
		w.iam = hanging{w.cloud, awsirsa.GrantedRoleName(mustParse(t, hubARN), mustParse(t, nthARN(0)))}
		w.restart()
		w.accept(clusters)
		w.cloud.delay = latency
		all, others := w.reconcileAll(clusters)
		if bound := (clusters/(workers-1) + 1) * calls * latency; others > bound || all < time.Minute {
			t.Errorf("the others take %s, at most %s; the hanging one %s", others, bound, all)
		}
		if c := w.accepted(nthCluster(0)); c.Status != metav1.ConditionFalse || c.Reason != ocm.ReasonGrantFailed {
			t.Errorf("the hanging one has the condition %+v", c)
		}
	})
}
