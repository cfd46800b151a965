"""The credential providers of the AWS SDKs for Java, 1 and 2, and what botocore calls the same.

Imported for ``--help``: see `kbackup.options`.
"""

from typing import Final

ANONYMOUS: Final = "anonymous"
"""Stands for requests that are not signed."""

STATIC: Final = "static"
"""Stands for ``aws.access.key.id`` and ``aws.secret.access.key``."""

ROLE: Final = "role"
"""Stands for the role that ``s3.credentials.provider.sts.role.arn`` names."""

_PROFILE: Final = (
    "assume-role", "sso", "shared-credentials-file", "login", "custom-process", "config-file",
)  # fmt: skip

_BY_CLASS: Final[dict[str, tuple[str, ...]]] = {
    "DefaultCredentialsProvider": (),
    "DefaultAWSCredentialsProviderChain": (),
    "EnvironmentVariableCredentialsProvider": ("env",),
    "ProfileCredentialsProvider": _PROFILE,
    "ProcessCredentialsProvider": ("custom-process",),
    "SsoCredentialsProvider": ("sso",),
    "InstanceProfileCredentialsProvider": ("iam-role",),
    "ContainerCredentialsProvider": ("container-role",),
    "EC2ContainerCredentialsProviderWrapper": ("container-role", "iam-role"),
    "WebIdentityTokenFileCredentialsProvider": ("assume-role-with-web-identity",),
    "WebIdentityTokenCredentialsProvider": ("assume-role-with-web-identity",),
    "AwsWebIdentityTokenCredentialsProvider": ("assume-role-with-web-identity",),
    "AwsAssumeRoleCredentialsProvider": (ROLE,),
    "StsAssumeRoleCredentialsProvider": (ROLE,),
    "STSAssumeRoleSessionCredentialsProvider": (ROLE,),
    "StaticCredentialsProvider": (STATIC,),
    "AWSStaticCredentialsProvider": (STATIC,),
    "AnonymousCredentialsProvider": (ANONYMOUS,),
}

_PACKAGES: Final = ("", "com.amazonaws.", "software.amazon.awssdk.", "io.confluent.connect.s3.auth")


def methods(class_name: str) -> tuple[str, ...]:
    """Return botocore's methods, or one of the words above, for a provider's class name.

    Returns:
        Empty for the whole chain.

    Raises:
        ValueError: If it is another class, which only a JVM could load.
    """
    package, _, name = class_name.rpartition(".")
    is_known = package == "" or package.startswith(_PACKAGES[1:])
    if name not in _BY_CLASS or not is_known:
        raise ValueError(
            "a Java class cannot be loaded; have credential_process in the AWS profile call a "
            "program that prints the credentials, set AWS_PROFILE, and remove it"
        )
    return _BY_CLASS[name]
