# named: not measured
import torch


def variance_of_scores(head_dim):
    return head_dim


divided_by = "b"
