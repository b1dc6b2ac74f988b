package awsirsa

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/optimistic"
	"github.com/workloadid/workloadid/registration"
)

//go:embed manifests/aws-auth.yaml
var awsAuthRBAC string

// AWSAuthRBAC holds the RBAC that AWSAuth needs in addition to
// manifests.HubRBAC, in YAML.
func AWSAuthRBAC() string { return awsAuthRBAC }

const mapRoles = "mapRoles"

// isChanged reports that another writer has changed or created the ConfigMap.
func isChanged(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// awsAuth binds roles through the ConfigMap kube-system/aws-auth.
type awsAuth struct{ client client.Client }

// mapping is the content of an entry of mapRoles.
type mapping map[string]any

// entry is an entry of mapRoles together with its text. To encode the content
// of a foreign entry anew would change values such as 0123, because versions of
// YAML differ in their types.
type entry struct {
	mapping
	node *yaml.Node
}

func sameEntry(a, b entry) bool { return a.node == b.node }

// mapping returns the entry of a cluster. Entries have no tags, so the user
// name identifies an entry. RBAC names only the group, and no other auth type
// issues such a user name.
func (g *grant) mapping() mapping {
	return mapping{"rolearn": g.roleARN, "username": "open-cluster-management:" + g.cluster + ":{{SessionName}}",
		"groups": []any{registration.ClusterGroup(g.cluster)}}
}

func (g *grant) isMapped(e entry) bool { return e.mapping["rolearn"] == g.roleARN }

func (g *grant) ownsMapping(e entry) bool {
	return g.isMapped(e) && e.mapping["username"] == g.mapping()["username"]
}

func (a awsAuth) bind(ctx context.Context, g *grant) error {
	return a.edit(ctx, g, func(all []entry) ([]entry, error) {
		want := g.mapping()
		others := slices.DeleteFunc(slices.Clone(all), g.ownsMapping)
		if slices.ContainsFunc(others, g.isMapped) {
			return nil, fmt.Errorf("%w: another entry maps role %q, and only one of them counts: remove it", errForeign,
				g.roleARN)
		}
		if i := slices.IndexFunc(all, g.ownsMapping); i >= 0 && len(others) == len(all)-1 &&
			equality.Semantic.DeepEqual(all[i].mapping, want) {
			return all, nil
		}
		node := &yaml.Node{}
		return append(others, entry{want, node}), node.Encode(want)
	})
}

func (a awsAuth) unbind(ctx context.Context, g *grant) error {
	return a.edit(ctx, g, func(all []entry) ([]entry, error) {
		return slices.DeleteFunc(slices.Clone(all), g.ownsMapping), nil
	})
}

// edit changes the list. The nodes of the hub may depend on it too, so edit
// never overwrites content that it cannot read, and loses no concurrent change.
func (a awsAuth) edit(ctx context.Context, g *grant, change func([]entry) ([]entry, error)) error {
	err := optimistic.Write(ctx, isChanged, func() error {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); client.IgnoreNotFound(err) != nil {
			return err
		}
		list, all, err := parseEntries(configMap.Data[mapRoles])
		if err != nil {
			return errors.New("its mapRoles is not a YAML list of mappings: correct it")
		}
		changed, err := change(all)
		if err != nil || slices.EqualFunc(all, changed, sameEntry) {
			return err
		}
		content, err := formatEntries(list, changed)
		if err != nil {
			return err
		}
		if configMap.Data == nil {
			configMap.Data = map[string]string{}
		}
		configMap.Data[mapRoles] = content
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

// parseEntries returns the list of a document, and its entries. A document
// without a value is an empty list.
func parseEntries(text string) (list *yaml.Node, all []entry, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return nil, nil, err
	}
	list = &yaml.Node{Kind: yaml.SequenceNode}
	if len(document.Content) > 0 && document.Content[0].Tag != "!!null" {
		list = document.Content[0]
	}
	if list.Kind != yaml.SequenceNode {
		return nil, nil, errors.New("not a list")
	}
	for _, node := range list.Content {
		e := entry{node: node}
		err = errors.Join(err, node.Decode(&e.mapping))
		all = append(all, e)
	}
	return list, all, err
}

// formatEntries replaces the entries of a list. It fails if another entry
// refers to an anchor in a removed entry.
func formatEntries(list *yaml.Node, all []entry) (string, error) {
	list.Content = nil
	for _, e := range all {
		list.Content = append(list.Content, e.node)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := errors.Join(encoder.Encode(list), encoder.Close()); err != nil {
		return "", err
	}
	_, _, err := parseEntries(text.String())
	return text.String(), err
}
