package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// Access reads the authentication mode of the cluster and the role's access entry.
func (r *Reader) Access(ctx context.Context, clusterARN, roleARN string) doctor.Finding {
	cluster, err := awsauth.ParseClusterARN(clusterARN)
	if err != nil {
		return doctor.Skipped("The cluster is not given by its ARN.")
	}
	if f := r.start(ctx, cluster.Partition, cluster.Account); f != nil {
		return *f
	}
	a := &access{reader: r, cluster: cluster, role: roleARN}
	a.client = eks.NewFromConfig(r.config, func(o *eks.Options) { o.Region = cluster.Region })
	return a.explain(ctx).Detail("read as", r.arn)
}

type access struct {
	reader  *Reader
	client  *eks.Client
	cluster awsauth.ClusterARN
	role    string
}

func (a *access) explain(ctx context.Context) doctor.Finding {
	mode, exists := a.mode(ctx)
	switch {
	case !exists:
		return doctor.Failed("A18", doctor.Do(correctNames), "Cluster %s does not exist in account %s.", a.cluster.Name, a.cluster.Account)
	case mode == types.AuthenticationModeConfigMap:
		return a.byConfigMap()
	}
	q := &reading.Question{Service: eksName, Right: "eks:DescribeAccessEntry", Login: a.reader.arn, Secrets: a.reader.secrets,
		Resource: fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/*", a.cluster.Partition, a.cluster.Region, a.cluster.Account, a.cluster.Name),
		Show:     a.command("describe-access-entry")}
	out, err := a.client.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &a.cluster.Name, PrincipalArn: &a.role})
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &missing):
		return a.noEntry(mode)
	case err != nil:
		return explain(err, q)
	case out.AccessEntry == nil:
		return q.Strange()
	}
	return a.refusedEntry(out.AccessEntry)
}

// mode is empty if it cannot be read, which is no obstacle: the entry may be readable.
func (a *access) mode(ctx context.Context) (mode types.AuthenticationMode, exists bool) {
	out, err := a.client.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &a.cluster.Name})
	var missing *types.ResourceNotFoundException
	if err != nil || out.Cluster == nil || out.Cluster.AccessConfig == nil {
		return "", !errors.As(err, &missing)
	}
	return out.Cluster.AccessConfig.AuthenticationMode, true
}

func (a *access) command(verb string) string {
	return fmt.Sprintf("aws eks %s --cluster-name %s --region %s --principal-arn %s", verb, shell.Word(a.cluster.Name, "CLUSTER_NAME"),
		a.cluster.Region, shell.Word(a.role, "ROLE_ARN"))
}

const correctNames = "Correct the name of the cluster or the role, if another one is meant."

func (a *access) byConfigMap() doctor.Finding {
	return doctor.Failed("A19", doctor.Do("Look for the role, without its path, under mapRoles:", "kubectl get configmap -n kube-system aws-auth -o yaml"),
		"Cluster %s admits roles by its ConfigMap aws-auth only, which was not read.", a.cluster.Name)
}

func (a *access) noEntry(mode types.AuthenticationMode) doctor.Finding {
	f := doctor.Failed("A19", doctor.Do(correctNames).OrTrust("If the role is meant to have access", a.command("create-access-entry")),
		"Cluster %s has no access entry for the role.", a.cluster.Name).Compare("role", a.role, "entry", "none")
	if mode == types.AuthenticationModeApiAndConfigMap {
		f.Message = "Cluster " + a.cluster.Name + " has no access entry for the role. Its ConfigMap aws-auth was not read."
	}
	return f
}

// refusedEntry is the finding of a role that has an entry, and is refused in spite of it. EKS compares the role's unique ID, which
// the entry does not show.
func (a *access) refusedEntry(entry *types.AccessEntry) doctor.Finding {
	create := a.command("create-access-entry")
	if len(entry.KubernetesGroups) > 0 {
		create += " --kubernetes-groups"
	}
	for _, group := range entry.KubernetesGroups {
		create += " " + shell.Word(group, "GROUP")
	}
	f := doctor.Failed("A19", doctor.Do("Compare the entry with the role:", a.command("describe-access-entry")).
		OrTrust("If the role is younger than its entry, create the entry anew", a.command("delete-access-entry"), create),
		"Cluster %s has an access entry for the role, and refuses it nevertheless.", a.cluster.Name)
	f.Causes = []string{"The role was deleted and created again after the entry.", "The entry was created in the last minutes.",
		"The token names another cluster than the one at this address."}
	return f.Detail("type", redact.Text(aws.ToString(entry.Type))).Detail("user", redact.Text(aws.ToString(entry.Username))).
		Detail("groups", redact.Text(strings.Join(entry.KubernetesGroups, ", ")))
}
