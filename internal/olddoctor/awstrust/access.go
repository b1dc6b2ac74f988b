package awstrust

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// ReadAccess reads the authentication mode of the cluster and the role's access entry, with its access policies.
func (r *Reader) ReadAccess(ctx context.Context, clusterARN, roleARN string) (*doctor.Access, error) {
	cluster, err := awsauth.ParseClusterARN(clusterARN)
	if err != nil {
		return nil, fmt.Errorf("%.300q is not the ARN of a cluster: %w", clusterARN, err)
	}
	cfg, err := r.in(ctx, cluster.Region)
	if err != nil {
		return nil, err
	}
	me, err := r.whoAmI(ctx, cfg, cluster.Account, "the cluster "+cluster.Name)
	if err != nil {
		return nil, err
	}
	client := eks.NewFromConfig(cfg)
	access := &doctor.Access{ReadBy: me.arn}
	// Not to know the mode is no obstacle.
	if out, err := client.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &cluster.Name}); err == nil &&
		out.Cluster != nil && out.Cluster.AccessConfig != nil {
		access.AuthenticationMode = string(out.Cluster.AccessConfig.AuthenticationMode)
	}
	if access.AuthenticationMode == string(types.AuthenticationModeConfigMap) {
		return access, nil
	}
	access.Entry, err = readEntry(ctx, client, me, cluster, roleARN)
	return access, err
}

func readEntry(ctx context.Context, client *eks.Client, me caller, cluster awsauth.ClusterARN, role string) (*doctor.AccessEntry, error) {
	// What these two actions are about is not the cluster.
	resource := fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/*", cluster.Partition, cluster.Region, cluster.Account,
		cluster.Name)
	where := fmt.Sprintf(" --cluster-name %s --region %s --principal-arn %s", quoted(cluster.Name), quoted(cluster.Region), quoted(role))
	asked := request{service: "EKS", action: "eks:DescribeAccessEntry", resource: resource, who: me.arn, secrets: me.secrets,
		show: "aws eks describe-access-entry" + where}
	out, err := client.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &cluster.Name, PrincipalArn: &role})
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &missing) && !isMissingCluster(missing):
		return nil, nil
	case err != nil:
		return nil, explain(err, asked)
	case out.AccessEntry == nil:
		return nil, strange(asked)
	}
	e := out.AccessEntry
	entry := &doctor.AccessEntry{Type: aws.ToString(e.Type), Username: aws.ToString(e.Username), Groups: e.KubernetesGroups}
	policies, err := client.ListAssociatedAccessPolicies(ctx,
		&eks.ListAssociatedAccessPoliciesInput{ClusterName: &cluster.Name, PrincipalArn: &role})
	if err != nil {
		entry.PoliciesErr = explain(err, request{service: "EKS", action: "eks:ListAssociatedAccessPolicies", resource: resource,
			who: me.arn, secrets: me.secrets,
			show: "aws eks list-associated-access-policies" + where})
		return entry, nil
	}
	for i := range policies.AssociatedAccessPolicies {
		entry.Policies = append(entry.Policies, nameOf(&policies.AssociatedAccessPolicies[i]))
	}
	if policies.NextToken != nil {
		entry.Policies = append(entry.Policies, "and more")
	}
	return entry, nil
}

// isMissingCluster tells the two apart that may be missing: the answer about an entry says so.
func isMissingCluster(err *types.ResourceNotFoundException) bool {
	return strings.HasPrefix(aws.ToString(err.Message), "No cluster found")
}

// nameOf is the policy's name and the namespaces that it is for.
func nameOf(p *types.AssociatedAccessPolicy) string {
	arn := aws.ToString(p.PolicyArn)
	name := arn[strings.LastIndexByte(arn, '/')+1:]
	switch {
	case p.AccessScope == nil:
		return name
	case p.AccessScope.Type == types.AccessScopeTypeNamespace:
		return name + " (namespaces " + strings.Join(p.AccessScope.Namespaces, " ") + ")"
	}
	return name + " (" + string(p.AccessScope.Type) + ")"
}
