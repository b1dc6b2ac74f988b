package aws

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// Access reads the authentication mode of the cluster and the role's access entry.
func (r *Reader) Access(ctx context.Context, clusterARN, roleARN string) doctor.Finding {
	cluster, err := awsauth.ParseClusterARN(clusterARN)
	if err != nil {
		return doctor.Skipped("The cluster is not given by its ARN.")
	}
	f := r.start(ctx, cluster.Partition, cluster.Account)
	if f.Result == "" {
		a := &access{r, eks.NewFromConfig(r.config, func(o *eks.Options) { o.Region = cluster.Region }), cluster, roleARN}
		f = a.explain(ctx)
	}
	return reading.ReadAs(r.arn, f)
}

type access struct {
	*Reader

	client  *eks.Client
	cluster awsauth.ClusterARN
	role    string
}

// explain needs no authentication mode: if it cannot be read, the entry may be readable.
func (a *access) explain(ctx context.Context) doctor.Finding {
	var mode types.AuthenticationMode
	var missing *types.ResourceNotFoundException
	described, err := a.client.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &a.cluster.Name})
	switch {
	case errors.As(err, &missing):
		return doctor.Failed(reason.ClusterNotFound, doctor.Do("Correct the ARN of the cluster."), "Cluster %s does not exist in account %s.", a.cluster.Name, a.cluster.Account)
	case err == nil && described.Cluster != nil && described.Cluster.AccessConfig != nil:
		mode = described.Cluster.AccessConfig.AuthenticationMode
	}
	if mode == types.AuthenticationModeConfigMap {
		return doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Look for the role, without its path, under mapRoles:", "kubectl get configmap -n kube-system aws-auth -o yaml"),
			"Cluster %s admits roles by its ConfigMap aws-auth only, which was not read.", a.cluster.Name)
	}
	q := a.question("Amazon EKS", "eks:DescribeAccessEntry", strings.Replace(a.cluster.String(), ":cluster/", ":access-entry/", 1)+"/*", a.command("describe"))
	out, err := a.client.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &a.cluster.Name, PrincipalArn: &a.role})
	switch {
	case errors.As(err, &missing):
		return a.noEntry(mode)
	case err != nil:
		return explain(err, q)
	case out.AccessEntry == nil:
		return q.Strange()
	}
	return a.uselessEntry(out.AccessEntry)
}

func (a *access) command(verb string) string {
	return "aws eks " + verb + "-access-entry --cluster-name " + a.cluster.Name + " --region " + a.cluster.Region + " --principal-arn " + shell.Word(a.role, "ROLE_ARN")
}

func (a *access) noEntry(mode types.AuthenticationMode) doctor.Finding {
	also := ""
	if mode == types.AuthenticationModeApiAndConfigMap {
		also = " Its ConfigMap aws-auth was not read."
	}
	return doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Correct the name of the cluster or the role, if another one is meant.").
		OrTrust("If the role is meant to have access", a.command("create")),
		"Cluster %s has no access entry for the role.%s", a.cluster.Name, also).Compare("role", a.role, "entry", "none")
}

// uselessEntry is the finding of a role that is refused in spite of its entry. EKS compares the role's unique ID, which the entry does
// not show.
func (a *access) uselessEntry(entry *types.AccessEntry) doctor.Finding {
	f := doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Compare the entry with the role:", a.command("describe")).
		OrTrust("If the role is younger than its entry, create the entry anew; deleting it loses its groups and access policies", a.command("delete"), a.command("create")+" --kubernetes-groups GROUPS"),
		"Cluster %s has an access entry for the role, and refuses it nevertheless.", a.cluster.Name)
	f.Causes = []string{"The role was deleted and created again after the entry.", "The entry was created in the last minutes.",
		"The token names another cluster than the one at this address."}
	return f.Detail("type", redact.Text(aws.ToString(entry.Type))).Detail("groups", redact.Text(strings.Join(entry.KubernetesGroups, ", ")))
}
