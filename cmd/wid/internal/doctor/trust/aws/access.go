package aws

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	reason "github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// Access reads the role's access entry. The ConfigMap aws-auth, which may admit the role too, is not read.
func (r *Reader) Access(ctx context.Context, clusterARN, roleARN string) doctor.Finding {
	cluster, err := awsname.ParseClusterARN(clusterARN)
	if err != nil {
		return doctor.Skipped("The cluster is not given by its ARN.")
	}
	return r.ask(ctx, cluster.Partition, cluster.Account, func() doctor.Finding { return r.explainAccess(ctx, cluster, roleARN) })
}

func (r *Reader) explainAccess(ctx context.Context, cluster awsname.ClusterARN, role string) doctor.Finding {
	command := func(verb string) string {
		return "aws eks " + verb + "-access-entry --cluster-name " + cluster.Name + " --region " + cluster.Region + " --principal-arn " + shell.Word(role, "ROLE_ARN")
	}
	client := eks.NewFromConfig(r.config, func(o *eks.Options) { o.Region = cluster.Region })
	out, err := client.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &cluster.Name, PrincipalArn: &role})
	var missing *types.ResourceNotFoundException
	var unsupported *types.InvalidRequestException
	switch {
	case errors.As(err, &unsupported):
		return doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Look for the role, without its path, under mapRoles of kube-system/aws-auth."),
			"Cluster %s has no access entries, and its ConfigMap aws-auth was not read.", cluster.Name)
	case errors.As(err, &missing):
		return doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Correct the name of the cluster or the role, if another one is meant.").OrTrust("If the role is meant to have access", command("create")),
			"Cluster %s has no access entry for the role. Its ConfigMap aws-auth was not read.", cluster.Name).Compare("role", role, "entry", "none")
	case err != nil:
		return r.explain(err, "eks:DescribeAccessEntry", command("describe"))
	case out.AccessEntry == nil:
		return r.unusable(nil, 0, "")
	}
	// EKS compares the role's unique ID, which the entry does not show.
	f := doctor.Failed(reason.ClusterRefusesIdentity, doctor.Do("Compare the entry with the role:", command("describe")).
		OrTrust("If the role is younger than its entry, create the entry anew; deleting it loses its groups and access policies", command("delete"), command("create")+" --kubernetes-groups GROUPS"),
		"Cluster %s has an access entry for the role, and refuses it nevertheless.", cluster.Name)
	f.Causes = []string{"The role was deleted and created again after the entry.", "The entry was created in the last minutes.", "The token names another cluster than the one at this address."}
	return f.Detail("type", redact.Text(aws.ToString(out.AccessEntry.Type))).Detail("groups", redact.Text(strings.Join(out.AccessEntry.KubernetesGroups, ", ")))
}
