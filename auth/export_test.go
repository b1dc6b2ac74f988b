package auth

// ClusterReference is clusterReference for the tests from outside of the
// package.
type ClusterReference struct {
	Provider, Cluster, Address, ServiceAccountName string
	Audiences                                      []string
}

func ParseClusterReference(data map[string]string) (ClusterReference, error) {
	r, err := parseClusterReference(data)
	if err != nil {
		return ClusterReference{}, err
	}
	return ClusterReference{r.provider, r.cluster, r.address, r.serviceAccountName, r.audiences}, nil
}
