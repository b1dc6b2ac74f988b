package credentials

const (
	azureTenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	prodARN     = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"
)
