#!/usr/bin/env python3
"""Opens a database in perf's exported-sql-viewer.py, walks its reports and prints as JSON what they show. Usage: perf_viewer.py DATABASE PICTURE"""
import collections
import importlib.machinery
import importlib.util
import json
import sys

SCRIPTS = "/usr/lib/perf-core/scripts/python"
sys.path.insert(0, SCRIPTS)
DATABASE, PICTURE = sys.argv[1:3]
sys.argv = ["exported-sql-viewer.py", DATABASE]
shown = {"errors": []}
sys.excepthook = lambda kind, value, trace: shown["errors"].append(str(value))

from PySide2.QtCore import QModelIndex, QTimer  # noqa: E402
from PySide2.QtWidgets import QApplication  # noqa: E402

loader = importlib.machinery.SourceFileLoader("viewer", SCRIPTS + "/exported-sql-viewer.py")
viewer = importlib.util.module_from_spec(importlib.util.spec_from_loader("viewer", loader))
loader.exec_module(viewer)


def counts(view, column):
    """The sum of a column, or the number of rows, by the name of the call."""
    model, found = view.model(), collections.Counter()
    waiting = [QModelIndex()]
    while waiting:
        parent = waiting.pop()
        if parent.isValid():
            view.expand(parent)
        for row in range(model.rowCount(parent)):
            index = model.index(row, 0, parent)
            text = str(model.data(model.index(row, column, parent), 0)) if column else "1"
            found[str(model.data(index, 0))] += int(text) if text.isdigit() else 0
            waiting.append(index)
    return found


def windows(main):
    return {type(each).__name__: each for each in main.mdi_area.subWindowList()}


def open_reports(main):
    main.resize(1500, 950)
    main.NewCallGraph()
    main.NewCallTree()
    for number, event in enumerate(viewer.GetEventList(main.glb.db), 1):
        if event.startswith("branches"):
            main.NewBranchView(number)
    if viewer.IsSelectable(main.glb.db, "context_switches"):
        main.TimeChartByCPU()
    shown["tables"] = {}
    names = viewer.QSqlQuery(main.glb.db)
    viewer.QueryExec(names, "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    while names.next():
        if not names.value(0).endswith("_threads_view"):
            query = viewer.QSqlQuery(main.glb.db)
            viewer.QueryExec(query, "SELECT * FROM " + names.value(0) + " WHERE id > 0 ORDER BY id LIMIT 10000")  # as its table view does
            rows = 0
            while query.next():
                rows += 1
            shown["tables"][names.value(0)] = rows
    main.NewTableView("ptd_functions")
    main.mdi_area.tileSubWindows()
    QTimer.singleShot(500, lambda: read(main))


def read(main):
    found = windows(main)
    shown["graph"] = counts(found["CallGraphWindow"].view, 2)
    shown["tree"] = counts(found["CallTreeWindow"].view, 0)
    query = viewer.QSqlQuery(main.glb.db)
    viewer.QueryExec(query, "SELECT count(*) FROM samples_view WHERE event = 'branches'")
    query.next()
    shown["branches"] = query.value(0)
    QTimer.singleShot(1000, lambda: end(main))


def end(main):
    main.grab().save(PICTURE)
    print(json.dumps(shown), flush=True)
    QApplication.instance().exit(0)


show = viewer.MainWindow.show
viewer.MainWindow.show = lambda main: (show(main), QTimer.singleShot(100, lambda: open_reports(main)))
viewer.Main()
