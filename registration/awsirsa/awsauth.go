package awsirsa

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/registration"
)

// AWSAuthManifest is the RBAC that the hub controller of registration.HubManifest needs in addition for AWSAuth, in YAML.
//
//go:embed manifests/aws-auth.yaml
var AWSAuthManifest string

const mapRoles = "mapRoles"

// conflicts is how often an edit is made again, for many clusters at once.
func conflicts() wait.Backoff {
	return wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 12, Cap: time.Second}
}

// awsAuth is the binding through the ConfigMap kube-system/aws-auth.
type awsAuth struct{ client client.Client }

// mapping is an entry of mapRoles. It keeps fields that it does not know.
type mapping map[string]any

// mapping returns the entry of a cluster. Entries have no tags, so the user name marks it. RBAC names only the
// group, and no other auth type issues such a user name.
func (g *grant) mapping() mapping {
	return mapping{"rolearn": g.roleARN, "username": "open-cluster-management:" + g.cluster + ":{{SessionName}}", "groups": []any{registration.ClusterGroup(g.cluster)}}
}

func (g *grant) isMapped(m mapping) bool { return m["rolearn"] == g.roleARN }

func (g *grant) ownsMapping(m mapping) bool {
	return g.isMapped(m) && m["username"] == g.mapping()["username"]
}

func (a awsAuth) bind(ctx context.Context, g *grant) error {
	return a.edit(ctx, g, func(all []mapping) ([]mapping, error) {
		want := g.mapping()
		others := slices.DeleteFunc(slices.Clone(all), g.ownsMapping)
		if slices.ContainsFunc(others, g.isMapped) {
			return nil, fmt.Errorf("%w: another entry maps role %q, and only one of them counts: remove it", errForeign, g.roleARN)
		}
		if i := slices.IndexFunc(all, g.ownsMapping); i >= 0 && len(others) == len(all)-1 && equality.Semantic.DeepEqual(all[i], want) {
			return all, nil
		}
		return append(others, want), nil
	})
}

func (a awsAuth) unbind(ctx context.Context, g *grant) error {
	return a.edit(ctx, g, func(all []mapping) ([]mapping, error) {
		return slices.DeleteFunc(slices.Clone(all), g.ownsMapping), nil
	})
}

// edit changes the list, which the nodes of the hub may depend on too: what cannot be read is never overwritten, and no change by another is
// lost.
func (a awsAuth) edit(ctx context.Context, g *grant, change func([]mapping) ([]mapping, error)) error {
	err := retry.OnError(conflicts(), func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); client.IgnoreNotFound(err) != nil {
			return err
		}
		var all []mapping
		if yaml.UnmarshalStrict([]byte(configMap.Data[mapRoles]), &all) != nil {
			return errors.New("its mapRoles is not a YAML list of mappings: correct it")
		}
		changed, err := change(all)
		if err != nil || equality.Semantic.DeepEqual(all, changed) {
			return err
		}
		content, err := yaml.Marshal(changed)
		if err != nil {
			return err
		}
		if configMap.Data == nil {
			configMap.Data = map[string]string{}
		}
		configMap.Data[mapRoles] = string(content)
		if configMap.ResourceVersion == "" {
			return a.client.Create(ctx, configMap)
		}
		return a.client.Update(ctx, configMap)
	})
	if err != nil {
		return fmt.Errorf("ConfigMap kube-system/aws-auth of the hub, for cluster %q: %w", g.cluster, err)
	}
	return nil
}
