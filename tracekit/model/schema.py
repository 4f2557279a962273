"""Tables declared as data: typed columns with a unit, a sentence and a better direction; and conforming frames to them.

The idea is that of Perfetto's trace processor: every column carries its type and one sentence, and everything that
compares or renders is driven by the declarations, so that a new metric needs no code there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracekit.errors import InputError
from tracekit.model.units import Unit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


class Better(StrEnum):
    """Which direction of a figure is an improvement."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"


class DType(StrEnum):
    """The type of a column's values."""

    INT = "int64"
    FLOAT = "float64"
    TEXT = "string"
    FLAG = "bool"
    PATH = "path"


@dataclass(frozen=True)
class Column:
    """One declared column. ``doc`` is a sentence; a nullable column holds NA where a value is missing, never zero."""

    name: str
    dtype: DType
    unit: Unit
    doc: str
    nullable: bool = False
    better: Better = Better.NONE


@dataclass(frozen=True)
class Table:
    """A declared table: what one row is, which column identifies it, and its columns in order."""

    name: str
    doc: str
    key: str
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        try:
            return self._by_name[name]
        except KeyError:
            raise KeyError(f"table {self.name} has no column {name}") from None

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def empty(self) -> pd.DataFrame:
        """A frame with the declared columns and no rows."""
        return self.conform({}, source=self.name)

    def conform(self, data: Any, *, source: str) -> pd.DataFrame:
        """``data`` as a frame of exactly the declared columns and types.

        ``data`` is a frame or a mapping of column name to values (numpy, Arrow or pandas; any length, all equal).
        A nullable column that is absent becomes NA. Columns that are not declared are dropped. The input is not
        mutated. Raises :class:`~tracekit.errors.InputError` that names ``source``, the table, the column and the
        first cell that does not fit.
        """
        import pandas as pd

        present = {column.name: data[column.name] for column in self.columns if column.name in data}
        lengths = {name: len(values) for name, values in present.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(
                source,
                expected=f"columns of one length in table {self.name}",
                found=", ".join(f"{name}: {length}" for name, length in lengths.items()),
                remedy="this is a fault of the reader; please report it with the file",
            )
        rows = next(iter(lengths.values()), 0)
        out: dict[str, Any] = {}
        for column in self.columns:
            if column.name in present:
                out[column.name] = _conform_column(present[column.name], column, f"table {self.name}", source)
            elif column.nullable or not present:
                out[column.name] = _missing(column, rows)
            else:
                raise InputError(
                    source,
                    expected=f"a column {column.name} in table {self.name} ({column.doc})",
                    found="no such column",
                    remedy="export the report again with a current nsys or ncu, with every table",
                )
        return pd.DataFrame(out, copy=False)


def integers(column: pd.Series, missing: int) -> npt.NDArray[np.int64]:
    """An integer column as numpy, with a stand-in where a value is missing; without a copy where none is."""
    import numpy as np
    import pyarrow as pa

    array = pa.array(column)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.null_count:
        array = array.fill_null(missing)
    values = array.to_numpy(zero_copy_only=False)
    return values if values.dtype == np.int64 else values.astype(np.int64)  # type: ignore[no-any-return]


def text_codes(column: pd.Series) -> tuple[npt.NDArray[np.int64], list[str]]:
    """A text column as integer codes, -1 where a text is missing, and the distinct texts that they number."""
    import numpy as np
    import pyarrow as pa

    array = pa.array(column)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not isinstance(array, pa.DictionaryArray):
        array = array.cast(pa.string()).dictionary_encode()
    indices = array.indices.fill_null(-1) if array.indices.null_count else array.indices
    return indices.to_numpy(zero_copy_only=False).astype(np.int64), array.dictionary.to_pylist()


def pandas_dtype(column: Column) -> Any:
    """The pandas dtype that holds ``column``: plain numpy where it cannot be missing, Arrow-backed where it can."""
    import pandas as pd
    import pyarrow as pa

    match column.dtype:
        case DType.INT:
            return pd.ArrowDtype(pa.int64()) if column.nullable else "int64"
        case DType.FLOAT:
            return pd.ArrowDtype(pa.float64()) if column.nullable else "float64"
        case DType.FLAG:
            return pd.ArrowDtype(pa.bool_()) if column.nullable else "bool"
        case DType.TEXT:
            return pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
        case DType.PATH:
            return "object"


def _missing(column: Column, rows: int) -> Any:
    import pandas as pd

    if column.dtype is DType.PATH:
        return pd.Series([None] * rows, dtype="object")
    if rows == 0:
        return pd.Series([], dtype=pandas_dtype(column))
    return pd.Series([None] * rows, dtype=pandas_dtype(column))


def _conform_column(values: Any, column: Column, where: str, source: str) -> Any:
    """One column cast to its declared type, or an error that names the first cell that does not fit."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    if column.dtype is DType.PATH:
        return pd.Series(list(values), dtype="object")
    if (
        isinstance(values, np.ndarray)
        and column.dtype is DType.INT
        and not column.nullable
        and values.dtype == np.int64
    ):
        return pd.Series(values, copy=False)
    if isinstance(values, pd.Series):
        values = pa.Array.from_pandas(values) if len(values) else pa.array([], pa.null())
    try:
        array = _arrow(values, column)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        row, cell = _first_misfit(values, column)
        raise InputError(
            source,
            expected=f"{column.dtype} [{column.unit}] in {where}, column {column.name}",
            found=f"{cell!r} in row {row}",
            remedy="the file is damaged or of an unknown kind; export it again from the report",
        ) from None
    if array.null_count and not column.nullable:
        row = int(np.flatnonzero(np.asarray(array.is_null()))[0])
        raise InputError(
            source,
            expected=f"a value in every cell of {where}, column {column.name}",
            found=f"no value in row {row}",
            remedy="the file is damaged or of an unknown kind; export it again from the report",
        )
    if column.dtype is DType.TEXT or column.nullable:
        return pd.Series(array, dtype=pandas_dtype(column), copy=False)
    return pd.Series(np.asarray(array), copy=False)


def _arrow(values: Any, column: Column) -> Any:
    import numpy as np
    import pyarrow as pa

    kinds = {DType.INT: pa.int64(), DType.FLOAT: pa.float64(), DType.FLAG: pa.bool_()}
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = values.tolist()
    if column.dtype is DType.TEXT:
        if isinstance(values, pa.DictionaryArray):
            return values.cast(pa.dictionary(pa.int32(), pa.string()))
        return (
            pa.array(values, pa.string()).dictionary_encode()
            if not isinstance(values, pa.Array)
            else values.cast(pa.string()).dictionary_encode()
        )
    kind = kinds[column.dtype]
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    text_or_flag = pa.types.is_string(array.type) or pa.types.is_boolean(array.type)
    if text_or_flag and array.type != kind:
        raise pa.ArrowTypeError(f"{array.type} is no {kind}")
    return array.cast(kind)


def _first_misfit(values: Any, column: Column) -> tuple[int, Any]:
    """The first (row, cell) that does not cast to the column's type on its own."""
    for row, cell in enumerate(values):
        if hasattr(cell, "as_py"):
            cell = cell.as_py()
        match column.dtype, cell:
            case _, None:
                continue
            case (DType.INT, bool()) | (DType.FLOAT, bool()):
                return row, cell
            case (DType.INT, int()) if -(2**63) <= cell < 2**63:
                continue
            case (DType.INT, float()) if cell.is_integer():
                continue
            case (DType.FLOAT, int() | float()) | (DType.FLAG, bool()) | (DType.TEXT, str()):
                continue
            case _:
                return row, cell
    return -1, "values of mixed types"
