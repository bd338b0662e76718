program_1 = (2, (4, 100, 768))
program_2 = (4, (4, 12, 100, 64))
program_3 = (0, (4, 100, 768))
program_4 = (5, (4, 12, 100, 64))
program_5 = (1, (4, 100, 768))


def product(a, b):
    if a[:-2] != b[:-2] or a[-1] != b[-2]:
        return None
    return (*a[:-1], b[-1])
