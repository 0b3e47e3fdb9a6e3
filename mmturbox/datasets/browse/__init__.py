"""Pictures of data sets, to see that sensors, labels, map and motion agree.

Read in this order: ``samples`` (what a record of an info file says),
``street_map`` and ``scene_tracks`` (what lies around it in space and time),
``camera_panel`` and ``bev_panel`` (the parts of a picture), ``sheet`` (one
sample), ``scenario_sheet`` (one Argoverse 2 scenario), ``command`` (which
ones, and where the pictures go).
"""
