from draftlight.engine.costs import StepCosts

COSTS = StepCosts((100, 1100), (1, 2, 4), ((10.0, 18.0, 15.0), (12.0, 22.0, 35.0)))


def test_measured_points_come_back_as_they_are() -> None:
    assert [COSTS.at(width, 100) for width in (1, 2, 4)] == [10.0, 18.0, 15.0]
    assert COSTS.at(4, 1100) == 35.0


def test_between_and_beyond_the_points_costs_follow_straight_lines() -> None:
    assert COSTS.at(3, 100) == 16.5
    assert COSTS.at(4, 600) == 25.0
    assert COSTS.at(1, 2100) == 14.0
    assert COSTS.at(8, 1100) == 61.0


def test_a_cost_never_falls_below_half_of_the_smallest_measured() -> None:
    falling = StepCosts((100, 200), (1,), ((10.0,), (6.0,)))
    assert falling.at(1, 5000) == 3.0


def test_one_measured_point_stands_for_all() -> None:
    assert StepCosts((100,), (1,), ((7.0,),)).at(9, 4000) == 7.0
