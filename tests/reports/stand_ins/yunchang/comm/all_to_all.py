"""A collective that Wan's USP imports and does not call."""


class SeqAllToAll4D:
    """Not called by the pipelines that are run here."""
