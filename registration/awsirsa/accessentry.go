package awsirsa

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// EKS is the part of *eks.Client that the hub calls.
type EKS interface {
	DescribeAccessEntry(context.Context, *eks.DescribeAccessEntryInput,
		...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error)
	CreateAccessEntry(context.Context, *eks.CreateAccessEntryInput,
		...func(*eks.Options)) (*eks.CreateAccessEntryOutput, error)
	UpdateAccessEntry(context.Context, *eks.UpdateAccessEntryInput,
		...func(*eks.Options)) (*eks.UpdateAccessEntryOutput, error)
	DeleteAccessEntry(context.Context, *eks.DeleteAccessEntryInput,
		...func(*eks.Options)) (*eks.DeleteAccessEntryOutput, error)
}

// accessEntries binds roles through EKS.
type accessEntries struct{ eks EKS }

// entryGroups returns the groups of an access entry. EKS refuses groups that
// begin with "system:".
func (g *grant) entryGroups() []string { return []string{"open-cluster-management:" + g.cluster} }

// entryUser returns the user name that EKS itself chooses.
func (g *grant) entryUser() string {
	return "arn:" + g.hub.Partition + ":sts::" + g.hub.Account + ":assumed-role/" + g.roleName + "/{{SessionName}}"
}

func (g *grant) entryTags() map[string]string {
	tags := g.owner()
	tags[tagRoleID] = g.roleID
	return tags
}

// bind replaces the entry of a deleted role, because EKS binds an entry to the
// ID of the role, not to its name.
func (a accessEntries) bind(ctx context.Context, g *grant) error {
	entry, err := a.find(ctx, g)
	if err != nil {
		return err
	}
	if entry != nil && !contains(entry.Tags, g.owner()) {
		return g.foreign("access entry", entry.Tags)
	}
	if entry != nil && entry.Tags[tagRoleID] != g.roleID {
		if err := a.remove(ctx, g); err != nil {
			return err
		}
		entry = nil
	}
	switch {
	case entry == nil:
		_, err = a.eks.CreateAccessEntry(ctx,
			&eks.CreateAccessEntryInput{ClusterName: &g.hub.Name, PrincipalArn: &g.roleARN, Type: aws.String("STANDARD"),
				KubernetesGroups: g.entryGroups(), Username: aws.String(g.entryUser()), Tags: g.entryTags()})
	case !slices.Equal(entry.KubernetesGroups, g.entryGroups()) || aws.ToString(entry.Username) != g.entryUser():
		_, err = a.eks.UpdateAccessEntry(ctx, &eks.UpdateAccessEntryInput{ClusterName: &g.hub.Name, PrincipalArn: &g.roleARN,
			KubernetesGroups: g.entryGroups(), Username: aws.String(g.entryUser())})
	}
	if err != nil {
		return g.explain("access entry", err)
	}
	return nil
}

func (a accessEntries) unbind(ctx context.Context, g *grant) error {
	entry, err := a.find(ctx, g)
	if err != nil || entry == nil || !contains(entry.Tags, g.owner()) {
		return err
	}
	return a.remove(ctx, g)
}

// find returns nil if the entry does not exist.
func (a accessEntries) find(ctx context.Context, g *grant) (*ekstypes.AccessEntry, error) {
	out, err := a.eks.DescribeAccessEntry(ctx,
		&eks.DescribeAccessEntryInput{ClusterName: &g.hub.Name, PrincipalArn: &g.roleARN})
	switch {
	case hasCode(err, codeNoEntry):
		return nil, nil
	case err != nil || out.AccessEntry == nil:
		return nil, g.explain("lookup of the access entry", orEmpty(err))
	}
	return out.AccessEntry, nil
}

func (a accessEntries) remove(ctx context.Context, g *grant) error {
	_, err := a.eks.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: &g.hub.Name, PrincipalArn: &g.roleARN})
	if err != nil && !hasCode(err, codeNoEntry) {
		return g.explain("removal of the access entry", err)
	}
	return nil
}
