package awsirsa

import (
	"fmt"

	"github.com/workloadid/workloadid/registration/ocm"
)

// Annotations in which a ManagedCluster claims its ARN. The first one belongs
// to the proposal, the others to Open Cluster Management.
const (
	ARNAnnotation       = "eks-managed-cluster-arn"
	OCMARNAnnotation    = "agent.open-cluster-management.io/managed-cluster-arn"
	OCMSuffixAnnotation = "agent.open-cluster-management.io/managed-cluster-iam-role-suffix"
)

// Claim returns the ARN in the cluster's annotations. [HubDriver] makes the
// checks that need the hub.
func Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	proposed, ok1 := cluster.Annotations[ARNAnnotation]
	released, ok2 := cluster.Annotations[OCMARNAnnotation]
	_, ok3 := cluster.Annotations[OCMSuffixAnnotation]
	switch {
	case !ok1 && !ok2 && !ok3:
		return "", false, nil
	case !ok1 && !ok2:
		return "", false, fmt.Errorf("the annotation %q stands without %q: add the ARN of the cluster", OCMSuffixAnnotation,
			OCMARNAnnotation)
	case ok1 && ok2 && proposed != released:
		return "", false, fmt.Errorf("the annotations %q and %q hold different ARNs, %.300q and %.300q: remove one of them",
			ARNAnnotation, OCMARNAnnotation, proposed, released)
	case !ok1:
		proposed = released
	}
	managed, err := ParseClusterARN(proposed)
	if err != nil {
		return "", false, err
	}
	return managed.String(), true, nil
}
